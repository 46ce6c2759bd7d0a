"""How much memory a collector takes when far too much comes at once, and whether it still answers.

    python -m bench.overload [--clients 64] [--rounds 2] [KIND…]

Starts a collector of its own for each kind of body, posts bodies of up to 20 MiB from many clients over loopback, and
prints the peak of its resident memory (all processes), what was answered, and the longest wait for ``/healthz``.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import grpc

from bench.processes import rss_mib
from collector.events_in import MAX_ITEMS
from collector.lock import Holder, holder
from pickwise.events import MAX_REQUEST_BYTES

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF, JSON, NDJSON = "application/x-protobuf", "application/json", "application/x-ndjson"
ROOM = MAX_REQUEST_BYTES - 128


class Load(NamedTuple):
    """What every client posts."""

    path: str
    body: bytes
    headers: dict[str, str]


def field(number: int, content: bytes) -> bytes:
    length = len(content)
    encoded = bytearray((number << 3 | 2,))
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(encoded) + bytes((length,)) + content


def attribute(key: str, value: str) -> bytes:
    return field(9, field(1, key.encode()) + field(2, field(1, value.encode())))


def spans(text: str) -> bytes:
    """20 MiB of tool calls whose arguments are the text."""
    found: list[bytes] = []
    size = number = 0
    while size < ROOM - 1_000 - len(text):
        number += 1
        ids = field(1, struct.pack(">QQ", 7, number // 20 + 1)) + field(2, struct.pack(">Q", number))
        times = b"\x39" + struct.pack("<Q", time.time_ns()) + b"\x41" + struct.pack("<Q", time.time_ns() + 10**6)
        attributes = attribute("gen_ai.operation.name", "execute_tool") + attribute(
            "gen_ai.tool.name", f"t{number % 50}"
        )
        arguments = attribute("gen_ai.tool.call.arguments", text) if text else b""
        found.append(field(2, ids + field(5, b"execute_tool t") + times + attributes + arguments))
        size += len(found[-1])
    return field(1, field(2, b"".join(found)))


def one_span(filling: bytes) -> bytes:
    ids = field(1, b"\2" * 16) + field(2, b"\1" * 8)
    return field(1, field(2, field(2, ids + filling * (ROOM // len(filling) - 64))))


def calls() -> bytes:
    lines: list[bytes] = []
    size = 0
    while size < ROOM - 100:
        lines.append(b'{"type":"call","skill_id":"s%d","event_id":"%d","ok":true}\n' % (len(lines) % 50, len(lines)))
        size += len(lines[-1])
    return b"".join(lines[:MAX_ITEMS])


def traces(body: bytes) -> Load:
    return Load("/v1/traces", body, {"Content-Type": PROTOBUF})


def zipped(load: Load) -> Load:
    return load._replace(body=gzip.compress(load.body, 1), headers=load.headers | {"Content-Encoding": "gzip"})


def bomb() -> Load:
    once = gzip.compress(b"\0" * 2 * MAX_REQUEST_BYTES, 9)
    headers = {"Content-Type": PROTOBUF, "Content-Encoding": "gzip"}
    return Load("/v1/traces", once * (MAX_REQUEST_BYTES // len(once)), headers)


def events(body: bytes, media: str = JSON) -> Load:
    return Load("/v1/events", body, {"Content-Type": media})


KINDS: dict[str, Callable[[], Load]] = {
    "spans of 1 KB": lambda: traces(spans("x" * 800)),
    "spans of 150 B": lambda: traces(spans("")),
    "spans of 1 KB, gzip": lambda: zipped(traces(spans("x" * 800))),
    "gzip bomb": bomb,
    "empty spans": lambda: traces(field(1, field(2, b"\x12\x00" * (ROOM // 2 - 16)))),
    "empty spans, gzip": lambda: zipped(traces(field(1, field(2, b"\x12\x00" * (ROOM // 2 - 16))))),
    "empty links": lambda: traces(one_span(b"\x6a\x00")),
    "span of attributes": lambda: traces(one_span(attribute("k", "v"))),
    "JSON of empty lists": lambda: Load(
        "/v1/traces", b'{"resourceSpans":[' + b"[]," * (ROOM // 3 - 20) + b"[]]}", {"Content-Type": JSON}
    ),
    "events": lambda: events(calls(), NDJSON),
    "events, all refused, gzip": lambda: zipped(events(b"{}\n" * MAX_ITEMS, NDJSON)),
    "skill events, gzip": lambda: zipped(events(b'{"type":"skill","skill_id":"a"}\n' * MAX_ITEMS, NDJSON)),
}


@contextmanager
def collector(data_dir: Path) -> Iterator[Holder]:
    command = [sys.executable, "-m", "pickwise.cli", "collect", "--data-dir", str(data_dir)]
    process = subprocess.Popen(
        [*command, "--http-port", "0", "--grpc-port", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while (held := holder(data_dir)) is None or held.http_port is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the collector did not start")
            time.sleep(0.1)
        yield held
    finally:
        process.kill()
        process.wait()


class Watch:
    """Peak memory and the longest wait for ``/healthz`` until ``stop``."""

    def __init__(self, held: Holder) -> None:
        self._held = held
        self._over = threading.Event()
        self.before_mib = self.peak_mib = rss_mib(held.pid)
        self.longest_s = 0.0
        self._threads = [threading.Thread(target=self._memory), threading.Thread(target=self._health)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _memory(self) -> None:
        while not self._over.wait(0.02):
            self.peak_mib = max(self.peak_mib, rss_mib(self._held.pid))

    def _health(self) -> None:
        while not self._over.wait(0.2):
            connection = http.client.HTTPConnection("127.0.0.1", self._held.http_port, timeout=120)
            started = time.monotonic()
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == http.client.OK
            connection.close()
            self.longest_s = max(self.longest_s, time.monotonic() - started)


def post(held: Holder, load: Load) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", held.http_port, timeout=300)
    try:
        connection.request("POST", load.path, load.body, load.headers)
        answer = connection.getresponse()
        answer.read()
        return str(answer.status)
    except OSError as error:
        return type(error).__name__
    finally:
        connection.close()


def unzipped(load: Load) -> Load:
    """What a gRPC client is given: it compresses by itself. Of a bomb it is the first part, twice what may come."""
    return load._replace(body=zlib.decompressobj(31).decompress(load.body))


def export(held: Holder, load: Load) -> str:
    compression = grpc.Compression.Gzip if "gzip" in load.headers.values() else None
    with grpc.insecure_channel(
        f"127.0.0.1:{held.grpc_port}",
        options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)],
    ) as channel:
        try:
            channel.unary_unary(EXPORT, bytes, bytes)(load.body, timeout=300, compression=compression)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def measure(load: Load, clients: int, rounds: int, send: Callable[[Holder, Load], str]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="pickwise-overload-"))
    answers: Counter[str] = Counter()
    try:
        with collector(folder) as held:
            watch = Watch(held)
            started = time.monotonic()

            def client() -> None:
                for _ in range(rounds):
                    answers[send(held, load)] += 1

            threads = [threading.Thread(target=client) for _ in range(clients)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took = time.monotonic() - started
            post(held, Load("/v1/refresh", b"", {}))
            watch.stop()
    finally:
        shutil.rmtree(folder)
    counts = ", ".join(f"{count} × {answer}" for answer, count in answers.most_common())
    peak = f"{watch.before_mib:,.0f} → {watch.peak_mib:,.0f}"
    return f"{len(load.body) / 2**20:.1f} | {peak} | {counts} | {watch.longest_s:.1f} | {took:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--grpc", action="store_true", help="traces over gRPC instead of HTTP")
    parser.add_argument("kinds", nargs="*", help=f"of: {', '.join(KINDS)}")
    asked = parser.parse_args()
    print("| body | MiB sent | memory before → peak, MiB | answers | longest /healthz, s | seconds |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in asked.kinds or KINDS:
        load = KINDS[name]()
        if asked.grpc and (load.path != "/v1/traces" or JSON in load.headers.values()):
            continue
        if asked.grpc and "gzip" in load.headers.values():
            load = unzipped(load)
        print(f"| {name} | {measure(load, asked.clients, asked.rounds, export if asked.grpc else post)} |", flush=True)


if __name__ == "__main__":
    main()
