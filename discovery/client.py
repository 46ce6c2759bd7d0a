"""The ranker's service for a discovery layer of one's own: weights, ranks and recall, with what was good last.

client = RankerClient("http://127.0.0.1:4318", cache_dir=Path("/var/cache/discovery"))
client.start()
found = client.recall("where is my parcel", k=50)
reranked = client.rank("where is my parcel", candidates, model="gpt-4o")
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import httpx
import msgspec

from discovery.connection import connect
from discovery.documents import Poller
from discovery.history import HistoryClient
from discovery.rerank import RANK_BUDGET_S, RankUnavailable, Reranked, rerank_by_service, rerank_locally
from discovery.weights import WeightsClient
from pickwise.events import Candidate

logger = logging.getLogger(__name__)

RECALL_PATH = "/v1/recall"
#: Longest wait for recall before the caller goes on without it.
RECALL_BUDGET_S = 0.25
POLL_S = 10.0


class RecallUnavailable(RuntimeError):  # noqa: N818 - a state of the service
    """The service gave no usable answer within the budget; the message says why."""


class Recalled(msgspec.Struct):
    """A skill found by its history: the cosine to its profile, and the successes behind it."""

    skill_id: str
    score: float
    support: float


class _Recall(msgspec.Struct):
    skills: list[Recalled]


class RankerClient:
    """Safe to use from several threads. ``start`` reads weights and history and keeps them fresh, ``close`` ends that.

    ``weights.value`` and ``history.value`` are the last good documents, with ``cache_dir`` also after a restart.
    """

    def __init__(
        self,
        base_url: str,
        *,
        project: str | None = None,
        api_key: str | None = None,
        cache_dir: Path | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        self._http = connect(base_url, project, api_key)
        self.weights = WeightsClient(self._http, cache_dir and cache_dir / "weights.json")
        self.history = HistoryClient(self._http, cache_dir and cache_dir / "history.arrow")
        self._poll_s = poll_s
        self._poller: Poller | None = None

    def start(self) -> None:
        self.refresh()
        self._poller = Poller(self.refresh, self._poll_s, "ranker")

    def close(self) -> None:
        if self._poller is not None:
            self._poller.stop()
        self._http.close()

    def refresh(self) -> None:
        self.weights.refresh()
        self.history.refresh()

    def rank(
        self,
        query: str,
        candidates: Sequence[Candidate],
        *,
        model: str | None = None,
        previous_skill_id: str | None = None,
        session_id: str | None = None,
        budget_s: float = RANK_BUDGET_S,
    ) -> Reranked:
        """The service's order; without it within the budget that of the last good weights, ``model_version`` None."""
        try:
            return rerank_by_service(self._http, query, candidates, model, previous_skill_id, budget_s, session_id)
        except RankUnavailable as error:
            logger.info("rank: %s; the local score is used", error)
            return rerank_locally(candidates, self.weights.value)

    def recall(
        self, query: str, k: int = 50, *, domain: str | None = None, budget_s: float = RECALL_BUDGET_S
    ) -> list[Recalled]:
        """Skills whose history is nearest to the query, best first. Raises RecallUnavailable."""
        body = msgspec.json.encode({"query": query, "k": k, "domain": domain})
        headers = {"Content-Type": "application/json"}
        try:
            response = self._http.post(RECALL_PATH, content=body, headers=headers, timeout=budget_s)
            response.raise_for_status()
            return msgspec.json.decode(response.content, type=_Recall).skills
        except (httpx.HTTPError, msgspec.MsgspecError) as error:
            raise RecallUnavailable(f"{type(error).__name__}: {error}") from error
