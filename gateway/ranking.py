"""The ranker's process: ranks, recall and weights over a Unix socket, for the collector's process to pass on.

It trusts who asks: the socket is open to this user alone, and keys and projects were judged at the HTTP port.
"""

from __future__ import annotations

import gc
import logging
import socket
import sys
import threading

import uvicorn
from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from collector.access import PROJECT_HEADER
from collector.mapping_pool import GC_THRESHOLDS
from collector.projects import is_project
from pickwise.events import DEFAULT_PROJECT
from pickwise.settings import Settings
from ranker.answering import RankerAnswers, refusal
from ranker.log_process import LogProcess
from ranker.serving import Projects

log = logging.getLogger(__name__)

#: Connections are the collector's own, which ends them.
_KEEP_ALIVE_S = 86_400
_GRACE_S = 5
_PROJECT, _DEFAULT = PROJECT_HEADER.lower().encode(), DEFAULT_PROJECT.encode()
#: How long loading keeps an answer waiting for the interpreter, seconds; Python's own are 5 ms.
_SWITCH_INTERVAL_S = 0.0005


def run(settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT. What every project is served from is loaded meanwhile."""
    logs = LogProcess(settings.data_dir, settings)
    answers = RankerAnswers(settings, logs.read)
    projects = answers.ranker.projects
    threading.Thread(target=_load_all, args=(logs, projects), name="ranker-load", daemon=True).start()
    config = uvicorn.Config(
        application(answers),
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="off",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    uvicorn.Server(config).run(sockets=[listener])
    projects.close()  # the process that reads logs ends with this one


def application(answers: RankerAnswers) -> ASGIApp:
    """Requests to their answers and nothing between: an application's way to a route takes a fifth of a request."""
    read = {
        "/v1/weights": answers.weights,
        "/v1/recall/artefact": answers.artefact,
    }
    asked = {"/v1/rank": answers.rank_body, "/v1/recall": answers.recall_body}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        path, method, told = scope["path"], scope["method"], dict(scope["headers"])
        project = told.get(_PROJECT, _DEFAULT).decode("latin-1")
        if not is_project(project):
            response = refusal(400, f"{PROJECT_HEADER}: expected 1 to 64 of A-Z a-z 0-9 . _ -, got {project!r:.80}")
        elif method == "GET" and path in read:
            response = await read[path](Request(scope, receive), project)
        elif method == "POST" and path in asked:
            coding = told.get(b"content-encoding", b"").decode("latin-1")
            response = await asked[path](await _body(receive), coding, project)
        else:
            response = refusal(404, f"nothing is at {method} {path:.200}")
        await response(scope, receive, send)

    return app


async def _body(receive: Receive) -> bytes:
    """The whole body, whose length and time were judged at the HTTP port."""
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _load_all(logs: LogProcess, projects: Projects) -> None:
    """So that no request of a project has to load it. A fault is logged: that request will tell it again."""
    try:
        projects.load_ahead(logs.projects)
    except Exception:
        log.exception("projects could not be loaded ahead")
