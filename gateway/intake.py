"""How `pickwise import` brings request bodies in: through the service that holds the folder, or by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx
import msgspec

from collector.access import IMPORT_HEADER
from collector.events_in import Rejection, read_items
from collector.importers import Batch
from collector.lock import FolderHeld, Holder, holder
from collector.projects import is_project
from collector.registry import StrictRefusal
from collector.service import Collector
from pickwise.settings import Settings

_PATHS = {"events": "/v1/events", "registry": "/v1/registry", "traces": "/v1/traces", "logs": "/v1/logs"}
_MEDIA = {"ndjson": "application/x-ndjson", "json": "application/json"}
_KEY_HINTS = {
    401: "; give a key of the project in PICKWISE_API_KEY",
    403: "; PICKWISE_API_KEY must hold a key of the project with the role ingest",
}
#: A batch waits at most this long for its acknowledgement, and a refresh for the backlog, seconds.
TIMEOUT_S = 300.0


class Receipt(msgspec.Struct):
    """How much of a batch was taken, and what was refused."""

    accepted: int
    problems: list[str]
    #: What the review says of registry entries.
    findings: int = 0


class ServiceRefused(RuntimeError):  # noqa: N818 - the service's answer more than an error
    """The running service did not take a batch as a whole."""


class Intake(Protocol):
    """A way in for batches; ``refresh`` returns when all that was sent is visible."""

    def send(self, batch: Batch) -> Receipt: ...

    def refresh(self) -> None: ...


@contextmanager
def open_intake(settings: Settings, project: str, *, strict: bool = False) -> Iterator[Intake]:
    """The service that holds the folder, else a collector of our own for as long as the block lasts.

    ``strict``: a batch of registry entries is refused as a whole when the review finds an error in it.
    Raises FolderHeld when a process without an HTTP port holds the folder (another import).
    """
    if not is_project(project):
        raise ServiceRefused(f"project: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {project!r:.80}")
    held = holder(settings.data_dir)
    if held is None:
        collector = Collector(settings, processes=settings.map_processes)
        collector.start()
        try:
            yield _Direct(collector, project, strict)
        finally:
            collector.stop()
        return
    if held.http_port is None:
        raise FolderHeld(Path(settings.data_dir), held)
    headers = {"X-Pickwise-Project": project, IMPORT_HEADER: "1"} | key_header(settings)
    with httpx.Client(base_url=service_url(held), headers=headers, timeout=TIMEOUT_S, trust_env=False) as client:
        yield _Remote(client, strict)


def key_header(settings: Settings) -> dict[str, str]:
    """What a request to a running service bears: the key of the setting ``api_key``, where there is one."""
    return {"Authorization": f"Bearer {settings.api_key.get_secret_value()}"} if settings.api_key else {}


class _Direct:
    def __init__(self, collector: Collector, project: str, strict: bool) -> None:
        self._collector = collector
        self._project = project
        self._strict = strict

    def send(self, batch: Batch) -> Receipt:
        if batch.kind == "events":
            return self._events(batch.body)
        if batch.kind == "registry":
            return self._entries(batch.body)
        submit = self._collector.submit_traces if batch.kind == "traces" else self._collector.submit_logs
        parsed, durable = submit(batch.body, "json", self._project, imported=True)
        if durable is not None:
            durable.result(TIMEOUT_S)
        return Receipt(batch.count, [parsed.message] if parsed.rejected else [])

    def refresh(self) -> None:
        self._collector.refresh()

    def _entries(self, body: bytes) -> Receipt:
        items = list(read_items(body, "ndjson"))
        try:
            answer = self._collector.registry.upsert(self._project, items, strict=self._strict)
        except StrictRefusal as refusal:
            raise ServiceRefused(str(refusal)) from refusal
        problems = [f"entry {r.index} ({r.skill_id}): {r.reason}" for r in answer.rejected]
        return Receipt(answer.accepted, problems, len(answer.findings))

    def _events(self, body: bytes) -> Receipt:
        parsed, durable = self._collector.submit_events(body, "ndjson", self._project, imported=True)
        if durable is not None:
            durable.result(TIMEOUT_S)
        skills, refused = self._collector.submit_skills(parsed, self._project)
        return Receipt(parsed.accepted + skills, [_problem(item) for item in (*parsed.rejected, *refused)])


class _Remote:
    def __init__(self, client: httpx.Client, strict: bool) -> None:
        self._client = client
        self._strict = strict

    def send(self, batch: Batch) -> Receipt:
        answer = self._post(batch)
        document: dict[str, Any] = answer.json() if answer.content else {}
        if batch.kind in ("traces", "logs"):
            self._check(answer)
            partial = document.get("partialSuccess") or {}
            return Receipt(batch.count, [partial["errorMessage"]] if partial.get("errorMessage") else [])
        if "accepted" not in document:
            self._check(answer)
        problems = [
            f"entry {item['index']} ({item['skill_id']}): {item['reason']}"
            if "skill_id" in item
            else _problem(msgspec.convert(item, Rejection))
            for item in document["rejected"]
        ]
        return Receipt(document["accepted"], problems, len(document.get("findings", ())))

    def _post(self, batch: Batch) -> httpx.Response:
        """The service's answer; a busy one is asked again for as long as it says that this helps."""
        deadline = time.monotonic() + TIMEOUT_S
        headers = {"Content-Type": _MEDIA[batch.encoding]}
        parameters = {"strict": "true"} if self._strict and batch.kind == "registry" else {}
        while True:
            answer = self._client.post(_PATHS[batch.kind], content=batch.body, headers=headers, params=parameters)
            wait = answer.headers.get("Retry-After", "")
            if not wait.isdigit() or time.monotonic() + int(wait) > deadline:
                return answer
            time.sleep(int(wait))

    def refresh(self) -> None:
        self._check(self._client.post("/v1/refresh"))

    def _check(self, answer: httpx.Response) -> None:
        if answer.is_error:
            mend = _KEY_HINTS.get(answer.status_code, "")
            raise ServiceRefused(
                f"the service at {self._client.base_url} answered {answer.status_code}: {reason(answer)}{mend}"
            )


def reason(answer: httpx.Response) -> str:
    """The service's sentence, where it says one."""
    try:
        return str(answer.json()["message"])
    except (ValueError, LookupError, TypeError):
        return answer.text


def service_url(held: Holder) -> str:
    """Where the service that holds a folder answers."""
    address = "127.0.0.1" if held.address in (None, "0.0.0.0", "::") else held.address
    return f"http://[{address}]:{held.http_port}" if ":" in address else f"http://{address}:{held.http_port}"


def _problem(rejection: Rejection) -> str:
    return f"event {rejection.index} ({rejection.event_id}): {rejection.reason}"
