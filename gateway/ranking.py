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
from fastapi import FastAPI

from collector.access import Access
from collector.callers import guard
from collector.mapping_pool import GC_THRESHOLDS
from collector.telemetry import Telemetry
from pickwise.settings import Settings
from ranker.answering import RankerAnswers
from ranker.http import add_ranker
from ranker.log_process import LogProcess
from ranker.serving import Projects

log = logging.getLogger(__name__)

#: Connections are the collector's own, which ends them.
_KEEP_ALIVE_S = 86_400
_GRACE_S = 5
#: How long loading keeps an answer waiting for the interpreter, seconds; Python's own are 5 ms.
_SWITCH_INTERVAL_S = 0.0005


def run(settings: Settings, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT. What every project is served from is loaded meanwhile."""
    app = FastAPI(openapi_url=None)
    guard(app, Access(False, Telemetry()))
    logs = LogProcess(settings.data_dir, settings)
    answers = RankerAnswers(settings, logs.read)
    add_ranker(app, answers)
    projects = answers.ranker.projects
    threading.Thread(target=_load_all, args=(logs, projects), name="ranker-load", daemon=True).start()
    config = uvicorn.Config(
        app,
        http="httptools",
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    uvicorn.Server(config).run(sockets=[listener])
    projects.close()  # the process that reads logs ends with this one


def _load_all(logs: LogProcess, projects: Projects) -> None:
    """So that no request of a project has to load it. A fault is logged: that request will tell it again."""
    try:
        projects.load_ahead(logs.projects)
    except Exception:
        log.exception("projects could not be loaded ahead")
