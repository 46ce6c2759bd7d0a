"""Searches that rank what a later turn is offered: retrievers, rerankers, vector databases and MCP's ``tools/list``.

The time of a retriever is the stage ``dense``, unless it says that it looks for words (then ``sparse``); that of a
reranker is ``rerank``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from collector.facts import Facts, SelectionFact
from collector.mapping import attributes as names
from collector.mapping.conversation import ToolDefinition, from_json, tool_definitions
from collector.mapping.documents import Document, document, documents_in, flattened_document, number
from collector.mapping.facts_of import offers
from collector.mapping.flattened import grouped
from collector.mapping.origin import origin_of
from collector.mapping.routing import skills_of
from collector.mapping.rules import Rule, marked, operating
from collector.spans import Attributes, Span, SpanEvent
from pickwise.events import MAX_CANDIDATES, Candidate, StageMs, derive_event_id
from pickwise.settings import Settings

_OI_KINDS = frozenset({"RETRIEVER", "RERANKER"})
_RETRIEVALS = frozenset({"retrieval", "retrieve"})
_RERANKS = frozenset({"rerank", "reranking", "rerank_documents"})
_SEARCHES = _RETRIEVALS | _RERANKS
_TOOL_LIST = "tools/list"
#: Names and labels of searches for words, and of those for both words and vectors.
_LEXICAL = re.compile(r"bm25|key_?word|sparse|lexical|full.?text|tf.?idf|splade", re.IGNORECASE)
_HYBRID = re.compile(r"hybrid|ensemble|fusion", re.IGNORECASE)
#: Fields that hold the query of a search, in what its span was given.
_QUERIES = ("query", "question", "query_str", "query_text", "search_query", "input", "text", "params", "arguments")
#: What each way of naming skills adds to the id of its fact; the first is the span's own.
_NAMINGS = ("", "metadata", "content")
_MAX_LAYERS = 3


class _Ranking(msgspec.Struct, kw_only=True):
    """How a search ranks: its strategy, the stage that its time is, and the kind of its scores."""

    strategy: str
    stage: str
    score: str


_DENSE = _Ranking(strategy="dense", stage="dense", score="dense")
_SPARSE = _Ranking(strategy="bm25", stage="sparse", score="bm25")
_FUSED = _Ranking(strategy="hybrid", stage="dense", score="score")
_RERANK = _Ranking(strategy="rerank", stage="rerank", score="rerank")


# --- the rules -------------------------------------------------------------------------------------------------------


@marked(names.OI_KIND)
def _openinference(span: Span, _settings: Settings) -> Facts | None:
    """OpenInference RETRIEVER and RERANKER."""
    kind = _kind(span, names.OI_KIND)
    if kind not in _OI_KINDS:
        return None
    attributes = span.attributes
    if kind == "RETRIEVER":
        found = _flattened(attributes, names.OI_DOCUMENTS) or documents_in(attributes.get(names.OI_OUTPUT))
        return _search(span, _ranking(span), _query(span, names.OI_INPUT), found)
    ranked = _flattened(attributes, names.OI_RERANK_OUTPUT) or documents_in(attributes.get(names.OI_OUTPUT))
    given = _flattened(attributes, names.OI_RERANK_INPUT)
    return _rerank(span, _query(span, names.OI_RERANK_QUERY, names.OI_INPUT), ranked, given)


@marked(*operating(*_SEARCHES))
def _genai(span: Span, _settings: Settings) -> Facts | None:
    """OpenTelemetry GenAI retrieval, and the rerank that extensions of it tell of."""
    operation = span.attributes.get(names.OPERATION)
    if not isinstance(operation, str) or operation not in _SEARCHES:
        return None
    attributes, query = span.attributes, _query(span, *names.RETRIEVAL_QUERIES)
    if operation in _RETRIEVALS:
        return _search(span, _ranking(span), query, documents_in(attributes.get(names.RETRIEVAL_DOCUMENTS)))
    ranked, given = (documents_in(attributes.get(name)) for name in (names.RERANK_OUTPUT, names.RERANK_INPUT))
    return _rerank(span, query, ranked, given)


@marked(names.LS_KIND)
def _langsmith_retriever(span: Span, _settings: Settings) -> Facts | None:
    """A retriever that LangSmith traced."""
    if _kind(span, names.LS_KIND) != "RETRIEVER":
        return None
    found = documents_in(span.attributes.get(names.COMPLETIONS))
    return _search(span, _ranking(span), _query(span, names.PROMPTS), found)


@marked(*names.VECTOR_RESULTS)
def _vector_database(span: Span, _settings: Settings) -> Facts | None:
    """A vector database that OpenLLMetry saw, where its span carries what it found."""
    if not span.events:
        return None
    found = [_event_document(event) for event in span.events if event.name in names.VECTOR_RESULTS]
    return _search(span, _ranking(span), None, found) if found else None


@marked(names.MCP_METHOD)
def _tool_list(span: Span, settings: Settings) -> Facts | None:
    """MCP ``tools/list``, where its span carries the tools: an offer, and a search when there was a query or scores."""
    if span.attributes.get(names.MCP_METHOD) != _TOOL_LIST:
        return None
    listed = _listed_tools(span.attributes)
    tools = skills_of(tool_definitions(listed), settings.tool_routes)
    if not tools:
        return None
    facts = Facts(offered=offers(span, tools))
    query = _query(span, *names.RETRIEVAL_QUERIES) or _argument_query(span, *names.MCP_ARGUMENTS, names.OI_INPUT)
    found = _listed_documents(listed, tools)
    if query is not None or any(item.score is not None for item in found):
        facts.selections = _search(span, _ranking(span), query, found).selections
    return facts


# --- facts -----------------------------------------------------------------------------------------------------------


def _search(span: Span, ranking: _Ranking, query: str | None, found: Sequence[Document]) -> Facts:
    """A retrieval for each way in which its documents name skills: which one is meant, a turn's menu will tell."""
    lists = (_candidates(ranking, found, naming) for naming in range(len(_NAMINGS)))
    facts = Facts()
    told: list[list[str]] = []
    for naming, candidates in zip(_NAMINGS, lists, strict=True):
        skill_ids = [candidate.skill_id for candidate in candidates]
        if skill_ids and skill_ids not in told:
            told.append(skill_ids)
            facts.selections = [*facts.selections, _fact(span, ranking, query, candidates, naming)]
    return facts


def _rerank(span: Span, query: str | None, ranked: list[Document], given: list[Document]) -> Facts:
    """A rerank; its list may say only by its place in what was given which document it means."""
    meant = [_named(item, given) for item in ranked]
    facts = _search(span, _RERANK, query, meant)
    scores = {name: item.score for item in given for name in item.names if name and item.score is not None}
    for fact in facts.selections:
        for candidate in fact.candidates:
            candidate.score = scores.get(candidate.skill_id)
    return facts


def _named(item: Document, given: list[Document]) -> Document:
    if any(item.names) or item.index is None or not 0 <= item.index < len(given):
        return item
    return msgspec.structs.replace(given[item.index], score=item.score)


def _candidates(ranking: _Ranking, found: Sequence[Document], naming: int) -> list[Candidate]:
    """The skills named so, in order, each once."""
    candidates: dict[str, Candidate] = {}
    for item in found:
        name = item.names[naming]
        if name is not None and name not in candidates:
            candidates[name] = Candidate(skill_id=name)
            setattr(candidates[name], ranking.score, item.score)
    return list(candidates.values())[:MAX_CANDIDATES]


def _fact(span: Span, ranking: _Ranking, query: str | None, candidates: list[Candidate], naming: str) -> SelectionFact:
    took = span.duration_ms
    origin = origin_of(span)
    origin.model = None  # it embeds or ranks, it does not pick
    fact = SelectionFact(
        role="retrieval",
        event_id=derive_event_id(span.trace_id, span.span_id, "selection", *([naming] if naming else [])),
        time=span.start_ns or None,
        trace_id=span.trace_id,
        span_id=span.span_id,
        query=query,
        candidates=candidates,
        ranked=True,
        strategy=ranking.strategy,
        stage_ms=None if took is None else StageMs(**{ranking.stage: took}),
    )
    return origin.given(fact)


# --- what spans hold -------------------------------------------------------------------------------------------------


def _kind(span: Span, attribute: str) -> str | None:
    kind = span.attributes.get(attribute)
    return kind.upper() if isinstance(kind, str) else None


def _ranking(span: Span) -> _Ranking:
    labels = _labels(span)
    if any(_HYBRID.search(label) for label in labels):
        return _FUSED
    return _SPARSE if any(_LEXICAL.search(label) for label in labels) else _DENSE


def _labels(span: Span) -> list[str]:
    """What says which kind of search it was; of LangChain's metadata only what it says of the retriever."""
    metadata = from_json(span.attributes.get(names.OI_METADATA))
    told = [value for key, value in metadata.items() if "retriever" in key] if isinstance(metadata, dict) else []
    labels = [span.name, *(span.attributes.get(key) for key in names.RETRIEVER_LABELS), *told]
    return [label for label in labels if isinstance(label, str)]


def _flattened(attributes: Attributes, prefix: str) -> list[Document]:
    return [flattened_document(group) for group in grouped(attributes, prefix)]


def _query(span: Span, *attributes: str) -> str | None:
    """The query in the first attribute that holds one: its text, or a field of the object that it is."""
    for attribute in attributes:
        value = span.attributes.get(attribute)
        decoded = from_json(value)
        query = _query_field(decoded, 0) if isinstance(decoded, dict | list) else value
        if isinstance(query, str) and query:
            return query
    return None


def _query_field(value: Any, layer: int) -> str | None:
    if isinstance(value, str):
        return value or None
    if not isinstance(value, dict) or layer == _MAX_LAYERS:
        return None
    held = (value[key] for key in _QUERIES if key in value)
    return next((query for inner in held if (query := _query_field(from_json(inner), layer + 1))), None)


def _argument_query(span: Span, *attributes: str) -> str | None:
    """The query among the arguments of a request."""
    held = (from_json(span.attributes.get(attribute)) for attribute in attributes)
    return next((query for value in held if isinstance(value, dict) and (query := _query_field(value, 0))), None)


def _event_document(event: SpanEvent) -> Document:
    """A result of a vector database. A distance is no score, as less of it is better."""
    found = event.attributes
    held = {key: found.get(f"{event.name}.{key}") for key in ("id", "score", "document", "metadata", "entity")}
    return document({key: from_json(value) if key == "entity" else value for key, value in held.items()})


def _listed_tools(attributes: Attributes) -> list[Any]:
    """The tools of the first result that holds some."""
    held = (names.TOOL_DEFINITIONS, *names.MCP_RESULTS, names.TOOL_RESULT, names.OI_OUTPUT, names.TL_OUTPUT)
    found = (_tools_in(attributes.get(name), 0) for name in held)
    return next((tools for tools in found if tools), [])


def _tools_in(value: Any, layer: int) -> list[Any]:
    decoded = from_json(value)
    if isinstance(decoded, list):
        return decoded
    if not isinstance(decoded, dict) or layer == _MAX_LAYERS:
        return []
    held = (decoded[key] for key in ("tools", "result", "structuredContent") if key in decoded)
    return next((tools for inner in held if (tools := _tools_in(inner, layer + 1))), [])


def _listed_documents(listed: list[Any], tools: list[ToolDefinition]) -> list[Document]:
    scores: dict[str, float | None] = {}
    for raw in listed:
        held = from_json(raw)
        (tool,) = tool_definitions([held]) or (None,)
        if tool is not None:
            scores.setdefault(tool.name, _score_of(held))
    return [Document(names=(tool.name, None, None), score=scores.get(tool.name)) for tool in tools]


def _score_of(raw: Any) -> float | None:
    """The score of a listed tool, beside its definition or in what MCP calls ``_meta``."""
    if not isinstance(raw, dict):
        return None
    meta = raw.get("_meta")
    held = (raw.get("score"), meta.get("score") if isinstance(meta, dict) else None)
    return next((found for value in held if (found := number(value)) is not None), None)


RULES: tuple[Rule, ...] = (
    _openinference,
    _genai,
    _langsmith_retriever,
    _vector_database,
    _tool_list,
)
