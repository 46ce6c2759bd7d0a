"""The reference discovery layer: from a query to an ordered list of skills, with its event sent."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from discovery.connection import connect
from discovery.documents import Poller
from discovery.explore import demote, fill_slot, shuffle_top
from discovery.fusion import FUSIONS, FusionMethod, alpha_for
from discovery.history import History, HistoryClient, UsageArm, usable
from discovery.recall import SkillIndex, VectorStore, best
from discovery.registry import Registry, RegistryClient
from discovery.rerank import RANK_BUDGET_S, RankUnavailable, Reranked, rerank_by_service, rerank_locally
from discovery.router import MAX_P99_MS, PROBE_S, Router
from discovery.weights import Weights, WeightsClient
from pickwise.embed import Embedder, Vectors, load_embedder
from pickwise.events import Candidate
from pickwise.text import script
from pickwise.trace import SelectionScope, SelectionTracer

logger = logging.getLogger(__name__)

#: Skills that recall hands to the rerank step.
POOL = 50
#: Longest wait for the embedding of a query before keyword search answers.
EMBED_BUDGET_S = 1.0
POLL_S = 10.0
EXACT, BM25, HYBRID, USAGE = "exact", "bm25", "hybrid", "usage"


class NoRegistry(RuntimeError):  # noqa: N818 - a state, not a fault
    """No registry has been read yet; the message says why."""


@dataclass
class Offered:
    """What one search found: ``candidates`` in the order to show, and how they came about."""

    candidates: list[Candidate]
    strategy: str
    stage_ms: dict[str, float] = field(default_factory=dict)
    fallback_reason: str | None = None
    randomized: bool = False
    no_match: bool = False
    registry_version: str | None = None
    embedding_version: str | None = None
    weights_version: str | None = None
    model_version: str | None = None

    def event_fields(self) -> dict[str, Any]:
        """The fields of the selection event that are taken as they are."""
        return {
            "no_match": self.no_match,
            "fallback": self.fallback_reason is not None,
            "fallback_reason": self.fallback_reason,
            "registry_version": self.registry_version,
            "embedding_version": self.embedding_version,
            "weights_version": self.weights_version,
            "model_version": self.model_version,
        }


@dataclass(frozen=True)
class _Usage:
    """The newest history that was looked at, and its arm over one index; no arm where it is of no use."""

    history: History | None = None
    index: SkillIndex | None = None
    arm: UsageArm | None = None

    def over(self, index: SkillIndex) -> UsageArm | None:
        return self.arm if self.index is index else None


class DiscoveryLayer:
    """Finds skills for queries, over the service at ``base_url``. Safe to use from several threads.

    ``start`` reads registry and weights once and then keeps them fresh in the background; ``close`` ends that.
    """

    def __init__(
        self,
        base_url: str,
        *,
        tracer: SelectionTracer | None = None,
        embedder: Embedder | None = None,
        project: str | None = None,
        api_key: str | None = None,
        fusion: FusionMethod = "weighted",
        cache_dir: Path | None = None,
        instance: str | None = None,
        poll_s: float = POLL_S,
        probe_s: float = PROBE_S,
        max_p99_ms: float = MAX_P99_MS,
        embed_budget_s: float = EMBED_BUDGET_S,
        rank_budget_s: float = RANK_BUDGET_S,
        seed: int | None = None,
    ) -> None:
        self.http = connect(base_url, project, api_key)
        self.tracer = tracer or SelectionTracer(endpoint=base_url, project=project, api_key=api_key)
        self.instance = instance or f"{socket.gethostname()}-{os.getpid()}"
        self.router = Router(self.instance, self.tracer.route, probe_s=probe_s, max_p99_ms=max_p99_ms)
        # What is later than the budget failed already, so slowness needs no limit of its own here.
        self._rank_router = Router(f"{self.instance}/rank", probe_s=probe_s, max_p99_ms=rank_budget_s * 1000)
        self.registry = RegistryClient(self.http, cache_dir and cache_dir / "registry.json")
        self.weights = WeightsClient(self.http, cache_dir and cache_dir / "weights.json")
        self.history = HistoryClient(self.http, cache_dir and cache_dir / "history.arrow")
        self._embedder = embedder or load_embedder()
        self._store = VectorStore(self._embedder)
        self._embedding = ThreadPoolExecutor(max_workers=1, thread_name_prefix="discovery-embed")
        self._embed_budget_s = embed_budget_s
        self._rank_budget_s = rank_budget_s
        self._fuse = FUSIONS[fusion]
        self._poll_s = poll_s
        self._rng = np.random.default_rng(seed)
        self._explore_lock = threading.Lock()
        self._build_lock = threading.Lock()
        self._index: SkillIndex | None = None
        self._indexed: Registry | None = None
        self._usage = _Usage()
        self._pollers: list[Poller] = []

    def start(self) -> None:
        """Read registry, weights and history, build the index, and poll for changes from now on."""
        self.refresh()
        self._pollers = [Poller(self.refresh, self._poll_s, "documents")]

    def close(self) -> None:
        for poller in self._pollers:
            poller.stop()
        self._embedding.shutdown(wait=False, cancel_futures=True)
        self.tracer.flush()
        self.http.close()

    def refresh(self) -> None:
        """Read all documents now, and build anew what changed, or lacked its vectors."""
        self.weights.refresh()
        self.registry.refresh()
        self.history.refresh()
        with self._build_lock:
            self._build_index()
            self._build_usage()

    def _build_index(self) -> None:
        registry = self.registry.value
        if registry is None or (registry is self._indexed and self._index and self._index.vectors is not None):
            return
        vectors = self._skill_vectors(registry)
        if registry is not self._indexed or vectors is not None:
            self._index = SkillIndex(registry.skills, registry.version, vectors)
            self._indexed = registry

    def _build_usage(self) -> None:
        history, index = self.history.value, self._index
        if index is None or (self._usage.history is history and self._usage.index is index):
            return
        is_usable = history is not None and usable(history, self._store.version)
        self._usage = _Usage(history, index, UsageArm(history, index.skill_ids) if history and is_usable else None)

    @contextmanager
    def select(
        self,
        query: str,
        k: int = 8,
        *,
        session_id: str | None = None,
        model: str | None = None,
        agent: str | None = None,
        turn: int | None = None,
        previous_skill_id: str | None = None,
        language: str | None = None,
        time: int | None = None,
    ) -> Iterator[SelectionScope]:
        """Search, and send the selection when the block ends; ``scope.event.candidates`` is the list to show."""
        with self.tracer.selection(
            query, session_id=session_id, turn=turn, model=model, agent=agent, time=time
        ) as selection:
            offered = self.search(
                query, k, session_id=session_id, model=model, previous_skill_id=previous_skill_id, explore=True
            )
            for stage, milliseconds in offered.stage_ms.items():
                selection.add_stage(stage, milliseconds)
            selection.offer(offered.candidates, strategy=offered.strategy, randomized=offered.randomized)
            selection.set(
                previous_skill_id=previous_skill_id, language=language or _language(query), **offered.event_fields()
            )
            yield selection

    def search(
        self,
        query: str,
        k: int = 8,
        *,
        session_id: str | None = None,
        model: str | None = None,
        previous_skill_id: str | None = None,
        explore: bool = False,
        learned: bool = True,
    ) -> Offered:
        """The list for a query, without any event.

        ``explore`` shuffles and fills the slot as the weights document says; without ``learned`` it is retrieval
        alone. Raises NoRegistry before the first registry was read.
        """
        index = self._index
        if index is None:
            raise NoRegistry(f"registry: {self.registry.error or 'not read yet; call start() first'}")
        weights = self.weights.value if learned else None
        started = time.perf_counter()
        offered = self._recall(index, query, weights, learned)
        recalled = offered.candidates
        if weights is not None:
            offered.weights_version = weights.version
            reranked = self._rerank(query, recalled, weights, model, previous_skill_id, session_id, offered)
            recalled = offered.candidates = reranked.candidates
            offered.model_version = reranked.model_version
        offered.candidates = demote(recalled, k, session_id, weights)
        if explore and weights is not None:
            with self._explore_lock:  # a numpy generator is not for several threads
                self._explore(offered, recalled, weights)
        offered.stage_ms["total"] = _since(started)
        return offered

    def _recall(self, index: SkillIndex, query: str, weights: Weights | None, learned: bool) -> Offered:
        """The pool, best first, with the scores of each arm; keyword search alone where the dense arm is out."""
        stages: dict[str, float] = {}
        started = time.perf_counter()
        sparse = index.sparse(query)
        stages["sparse"] = _since(started)
        vector, fallback_reason = self._query_vector(index, query, stages)
        started = time.perf_counter()
        dense = index.dense(vector) if vector is not None else None
        stages["dense"] = _since(started)
        started = time.perf_counter()
        if dense is None:
            scores = sparse.bm25
        else:
            alpha = alpha_for(query, sparse.known_share, weights.fusion.alpha if weights else None)
            scores = self._fuse(sparse.bm25, dense, alpha)
        arm = self._usage.over(index) if learned else None
        led = np.zeros(len(index), dtype=bool)
        if arm is not None and vector is not None and dense is not None:
            scores, led = arm.blend(scores, dense, vector)
        exact = index.exact(query)
        candidates = [
            Candidate(
                skill_id=index.skill_ids[position],
                score=float(scores[position]),
                bm25=float(sparse.bm25[position]),
                dense=None if dense is None else float(dense[position]),
                source=_source(position in exact, bool(led[position]), dense is not None),
            )
            for position in best(scores, POOL, exact)
        ]
        stages["merge"] = _since(started)
        return Offered(
            candidates,
            BM25 if dense is None else HYBRID,
            stages,
            fallback_reason,
            no_match=not exact and _no_match(sparse.known_share, dense, weights),
            registry_version=index.registry_version,
            embedding_version=None if dense is None else self._store.version,
        )

    def _query_vector(
        self, index: SkillIndex, query: str, stages: dict[str, float]
    ) -> tuple[Vectors | None, str | None]:
        """The query's vector, or None with the reason of the fallback."""
        path = self.router.choose()
        if path == "keyword":
            return None, f"degraded: {self.router.degraded_reason}"
        started = time.perf_counter()
        vector: Vectors | None = None
        reason: str | None = None
        pending = self._embedding.submit(self._embedder.embed, [query])
        try:
            vector = pending.result(timeout=self._embed_budget_s)[0]
        except FutureTimeout:
            pending.cancel()
            reason = f"embedding took longer than {self._embed_budget_s * 1000:.0f} ms"
        except Exception as error:
            # An embedder may be any model behind any client: whatever it raises, keyword search still answers.
            logger.debug("embedding failed", exc_info=True)
            reason = f"embedding failed: {type(error).__name__}"
        stages["embed"] = _since(started)
        self.router.record(path, stages["embed"], reason is None)
        if reason is None and index.vectors is None:
            return None, "skills are not embedded yet"
        return vector, reason

    def _rerank(
        self,
        query: str,
        recalled: list[Candidate],
        weights: Weights,
        model: str | None,
        previous_skill_id: str | None,
        session_id: str | None,
        offered: Offered,
    ) -> Reranked:
        """The served model's order within the budget, else the local score; named skills stay in front."""
        named = [candidate for candidate in recalled if candidate.source == EXACT]
        others = [candidate for candidate in recalled if candidate.source != EXACT]
        started = time.perf_counter()
        reranked = self._by_service(query, others, weights, model, previous_skill_id, session_id)
        offered.stage_ms["rerank"] = _since(started)
        return Reranked(named + reranked.candidates, reranked.model_version)

    def _by_service(
        self,
        query: str,
        candidates: list[Candidate],
        weights: Weights,
        model: str | None,
        previous_skill_id: str | None,
        session_id: str | None,
    ) -> Reranked:
        path = self._rank_router.choose() if weights.model is not None and candidates else "keyword"
        if path == "keyword":
            return _by_fused_score(candidates, weights)
        started = time.perf_counter()
        try:
            reranked = rerank_by_service(
                self.http, query, candidates, model, previous_skill_id, self._rank_budget_s, session_id
            )
        except RankUnavailable as error:
            logger.info("rank: %s; the local score is used", error)
            self._rank_router.record(path, _since(started), ok=False)
            return _by_fused_score(candidates, weights)
        self._rank_router.record(path, _since(started), ok=True)
        return reranked

    def _explore(self, offered: Offered, recalled: list[Candidate], weights: Weights) -> None:
        slot = weights.explore.slot
        if slot:
            rank = slot if slot is not True else None
            offered.candidates = fill_slot(offered.candidates, recalled, weights, self._rng, rank)
        if len(offered.candidates) > 1 and self._rng.random() < weights.explore.shuffle_fraction:
            offered.candidates = shuffle_top(offered.candidates, self._rng)
            offered.randomized = True

    def _skill_vectors(self, registry: Registry) -> Vectors | None:
        if not registry.skills:
            return None
        try:
            return self._store.vectors([skill.text for skill in registry.skills])
        except Exception:
            # As above: any embedder, any fault. The next refresh tries again.
            logger.exception("registry %s: skills could not be embedded", registry.version)
            return None


def _source(is_exact: bool, is_led_by_use: bool, has_dense: bool) -> str:
    if is_exact:
        return EXACT
    return USAGE if is_led_by_use else HYBRID if has_dense else BM25


def _no_match(known_share: float, dense: np.ndarray[Any, Any] | None, weights: Weights | None) -> bool:
    """No skill is near enough: the best cosine is under the calibrated threshold, or no term is known at all."""
    if dense is None:
        return known_share == 0.0
    threshold = weights.no_match_threshold if weights is not None else None
    return threshold is not None and float(dense.max(initial=-1.0)) < threshold


def _language(text: str) -> str | None:
    """Chinese by its script; a Latin or Japanese text does not tell its language so easily."""
    kana = any("\u3040" <= character <= "\u30ff" for character in text)
    hangul = any("\uac00" <= character <= "\ud7af" for character in text)
    return "zh" if script(text) == "cjk" and not kana and not hangul else None


def _by_fused_score(candidates: list[Candidate], weights: Weights) -> Reranked:
    """The local order by what recall fused: that score holds all arms already, and is the one that use adjusts."""
    fused = [Candidate(skill_id=candidate.skill_id, score=candidate.score) for candidate in candidates]
    of = {candidate.skill_id: candidate for candidate in candidates}
    return Reranked([of[candidate.skill_id] for candidate in rerank_locally(fused, weights).candidates], None)


def _since(started: float) -> float:
    """Milliseconds since a ``perf_counter`` reading."""
    return (time.perf_counter() - started) * 1000
