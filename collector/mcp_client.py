"""What tools an MCP server offers, asked over its streamable HTTP transport.

One handshake, every page of ``tools/list``, and goodbye. Servers answer as JSON or as an event stream; both are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from typing import Any, NamedTuple, Self

import httpx
import msgspec

#: The newest revision with an ``initialize`` handshake; a server may choose an older one.
PROTOCOL_VERSION = "2025-11-25"
#: For the whole conversation, seconds: a stream that only says that it is alive ends too.
TIMEOUT_S = 60.0
#: Of all answers together: what one import takes.
MAX_BYTES = 16 * 1024 * 1024
MAX_PAGES = 1_000
_JSON, _STREAM = "application/json", "text/event-stream"
_MENDS = {
    401: "it wants to know who asks: give --header 'Authorization: Bearer TOKEN'",
    403: "who asks may not: give another --header 'Authorization: Bearer TOKEN'",
    404: "nothing answers at this path: most servers answer at /mcp",
    405: "this path takes no POST: most servers answer at /mcp",
    406: "it speaks neither JSON nor event streams here",
}


class McpProblem(RuntimeError):  # noqa: N818 - the server's answer more than an error
    """The server was not reached, or did not answer as MCP says; the text names the address and the mend."""


class McpTools(NamedTuple):
    """What a server calls itself, and its tools as it describes them, in its order."""

    server: str
    tools: list[dict[str, Any]]


def list_tools(url: str, headers: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> McpTools:
    """All tools of the MCP server at an http(s) address; ``headers`` go with every request. Raises McpProblem."""
    with _Conversation(url, headers or {}, timeout_s) as conversation:
        hello = conversation.ask(
            "initialize",
            {
                "protocolVersion": PROTOCOL_VERSION,
                "capabilities": {},
                "clientInfo": {"name": "pickwise", "version": metadata.version("pickwise")},
            },
        )
        conversation.agree(hello)
        return McpTools(_server_name(hello), list(_pages(conversation)))


def _pages(conversation: _Conversation) -> Iterator[dict[str, Any]]:
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = conversation.ask("tools/list", {} if cursor is None else {"cursor": cursor})
        tools = page.get("tools")
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise conversation.problem("tools/list: expected an object with a list `tools`")
        yield from tools
        following = page.get("nextCursor")
        if following is None:
            return
        if not isinstance(following, str) or following == cursor:
            raise conversation.problem("tools/list: expected a new string as nextCursor, or none")
        cursor = following
    raise conversation.problem(f"tools/list: more than {MAX_PAGES:,} pages")


def _server_name(hello: dict[str, Any]) -> str:
    info = hello.get("serverInfo")
    said = info if isinstance(info, dict) else {}
    return " ".join(str(said[name]) for name in ("name", "version") if said.get(name)) or "an MCP server"


class _Conversation:
    """Requests to one server, in its session."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        try:
            self._url = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise McpProblem(f"{url!r:.200}: {error}") from error
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise McpProblem(f"{url!r:.200}: expected the http(s) address of an MCP server, like http://host:8000/mcp")
        self._deadline = time.monotonic() + timeout_s
        self._received = 0
        self._last_id = 0
        try:
            self._client = httpx.Client(
                headers={"Accept": f"{_JSON}, {_STREAM}", "Accept-Encoding": "identity"} | dict(headers),
                timeout=timeout_s,
            )
        except (UnicodeError, ValueError) as error:
            raise McpProblem(f"--header: expected ASCII names and values ({error})") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if "Mcp-Session-Id" in self._client.headers:
            with suppress(httpx.HTTPError):  # a server forgets its sessions by itself
                self._client.delete(self._url, timeout=5)
        self._client.close()

    def problem(self, what: str) -> McpProblem:
        """What went wrong, with the address: without what in it may be secret."""
        return McpProblem(f"{self._url.copy_with(userinfo=b'', query=None, fragment=None)}: {what}")

    def ask(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The result of one request."""
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": parameters}
        answer = self._post(message)
        if answer is None:
            raise self.problem(f"{method}: no answer")
        if isinstance(error := answer.get("error"), dict):
            raise self.problem(f"{method}: refused: {str(error.get('message'))[:500]} ({error.get('code')})")
        result = answer.get("result")
        if not isinstance(result, dict):
            raise self.problem(f"{method}: expected a result")
        return result

    def agree(self, hello: dict[str, Any]) -> None:
        """Take over what the server chose in its answer to ``initialize``, and say that the handshake is done."""
        version, offers = hello.get("protocolVersion"), hello.get("capabilities")
        if not isinstance(version, str) or not isinstance(offers, dict):
            raise self.problem("initialize: expected a protocolVersion and capabilities")
        if "tools" not in offers:
            raise self.problem(f"offers no tools, only {', '.join(sorted(offers)) or 'nothing'}")
        self._client.headers["MCP-Protocol-Version"] = version
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _post(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a message; None where there is none, as to a notification."""
        content = msgspec.json.encode(message)
        try:
            with self._client.stream("POST", self._url, content=content, headers={"Content-Type": _JSON}) as answer:
                return self._read(answer, message.get("id"))
        except httpx.TimeoutException as error:
            raise self.problem("no answer in time") from error
        except httpx.HTTPError as error:
            raise self.problem(f"can't be reached or stopped answering ({error})") from error

    def _read(self, answer: httpx.Response, wanted: object) -> dict[str, Any] | None:
        media = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if answer.is_redirect:
            raise self.problem(f"moved to {answer.headers.get('Location', '?')!r:.200}: give that address")
        documents = _events(self._chunks(answer)) if media == _STREAM else [b"".join(self._chunks(answer))]
        found = None if wanted is None and answer.is_success else next(_answers(documents, wanted), None)
        if answer.is_error and (found is None or "error" not in found):
            mend = _MENDS.get(answer.status_code, f"status {answer.status_code}")
            raise self.problem(f"{mend} ({answer.status_code})")
        if wanted is not None and found is None:
            raise self.problem(f"expected JSON-RPC, got {media or 'nothing'} (status {answer.status_code})")
        if session := answer.headers.get("Mcp-Session-Id"):
            self._client.headers["Mcp-Session-Id"] = session
        return found

    def _chunks(self, answer: httpx.Response) -> Iterator[bytes]:
        for chunk in answer.iter_bytes():
            self._received += len(chunk)
            if self._received > MAX_BYTES:
                raise self.problem(f"answers with more than {MAX_BYTES // 2**20} MiB")
            if time.monotonic() > self._deadline:
                raise self.problem("no answer in time")
            yield chunk


def _answers(documents: Iterable[bytes], wanted: object) -> Iterator[dict[str, Any]]:
    """The JSON-RPC answers among documents; an error that names no request is one to the only request there is."""
    for document in documents:
        try:
            message = msgspec.json.decode(document)
        except (msgspec.DecodeError, RecursionError):
            continue
        if not isinstance(message, dict) or not message.keys() & {"result", "error"}:
            continue
        if message.get("id") == wanted or (message.get("id") is None and "error" in message):
            yield message


def _events(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each event of a stream of server-sent events."""
    held, data = b"", list[bytes]()
    for chunk in chunks:
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data.clear()
    if data:
        yield b"\n".join(data)
