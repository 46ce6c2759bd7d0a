"""One application on one port: the collector's ways in, the answers of analytics, the ranker's service."""

from __future__ import annotations

from fastapi import FastAPI

from collector.http import add_collector
from collector.problems import REFUSALS
from collector.service import Collector
from gateway.admin import admin_router
from gateway.answers import answers_router
from gateway.forward import ForwardedAnswers, Shortcut
from gateway.unreadable import answer_unreadable
from pickwise.settings import Settings
from ranker.answering import RankerAnswers
from ranker.http import Answers, add_ranker

DESCRIPTION = "Observability and feedback learning for the decision which tool an agent picks."


def create_app(settings: Settings, collector: Collector) -> FastAPI:
    """The whole HTTP surface over a started collector. OpenAPI at ``/docs``, which needs no key: it holds no data."""
    app = FastAPI(
        title="Pickwise",
        description=DESCRIPTION,
        docs_url="/docs",
        redoc_url=None,
        responses=REFUSALS,
        redirect_slashes=False,  # another path is another thing, and few clients send a body on to it
    )
    add_collector(app, collector)
    answer_unreadable(app, settings)
    answers = _ranker_answers(settings)
    add_ranker(app, answers)
    if isinstance(answers, ForwardedAnswers):
        app.add_middleware(Shortcut, answers=answers)
    app.include_router(admin_router(collector))
    app.include_router(answers_router(settings))
    return app


def _ranker_answers(settings: Settings) -> Answers:
    """Those of the ranker's own process where it has one."""
    path = settings.ranker_socket
    return RankerAnswers(settings) if path is None else ForwardedAnswers(settings, path)
