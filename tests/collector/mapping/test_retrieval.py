"""Search and rerank spans, and how a document names a skill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.facts import Facts, SelectionFact
from collector.mapping import map_span
from collector.mapping.documents import documents_in
from collector.observed import ObservedSkills, Offers
from collector.redact import Redactor
from collector.spans import SpanEvent
from pickwise.settings import Settings
from tests.analytics.conftest import House
from tests.collector.frames_of import to_frames
from tests.collector.mapping.spans import SPAN, START, TRACE, mapped, span

UUID = "0b1f7f0e-6c0e-4f62-9c58-3f1f6f0a2b11"


def flattened(prefix: str, *documents: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{prefix}.{number}.document.{name}": value
        for number, document in enumerate(documents)
        for name, value in document.items()
    }


def retriever(*documents: dict[str, Any], **attributes: Any) -> dict[str, Any]:
    return {"openinference.span.kind": "RETRIEVER"} | flattened("retrieval.documents", *documents) | attributes


def retrievals(facts: Facts) -> list[SelectionFact]:
    found = [selection for selection in facts.selections if isinstance(selection, SelectionFact)]
    assert len(found) == len(facts.selections)
    assert {fact.role for fact in found} <= {"retrieval"}
    return found


def only(facts: Facts) -> SelectionFact:
    (found,) = retrievals(facts)
    return found


def ranked(fact: SelectionFact, *kinds: str) -> list[tuple[Any, ...]]:
    return [(candidate.skill_id, *(getattr(candidate, kind) for kind in kinds)) for candidate in fact.candidates]


def test_an_openinference_retriever() -> None:
    documents = ({"id": "b", "score": 0.9, "content": "B"}, {"id": "a", "score": 0.5}, {"id": "b", "score": 0.1})
    attributes = retriever(*documents, **{"input.value": "weather in Rome", "session.id": "s", "agent.name": "x"})
    fact = only(mapped(attributes, parent_span_id="1" * 16))
    assert ranked(fact, "dense", "bm25", "score") == [("b", 0.9, None, None), ("a", 0.5, None, None)]
    assert (fact.query, fact.strategy, fact.ranked) == ("weather in Rome", "dense", True)
    assert (fact.session_id, fact.agent, fact.model) == ("s", "x", None)
    assert (fact.time, fact.ended_at, fact.parent_span_id) == (START, START + 5_000_000, "1" * 16)
    assert fact.stage_ms is not None
    assert (fact.stage_ms.dense, fact.stage_ms.sparse, fact.stage_ms.total) == (5.0, None, None)


def test_ten_documents_come_after_nine() -> None:
    documents = [{"id": f"t{number}"} for number in range(12)]
    attributes = dict(reversed(retriever(*documents).items()))
    assert [candidate.skill_id for candidate in only(mapped(attributes)).candidates] == [f"t{i}" for i in range(12)]


@pytest.mark.parametrize(
    ("name", "attributes", "strategy", "stage", "score"),
    [
        ("VectorStoreRetriever", {}, "dense", "dense", "dense"),
        ("BM25Retriever", {}, "bm25", "sparse", "bm25"),
        ("search", {"retriever.type": "keyword"}, "bm25", "sparse", "bm25"),
        ("search", {"metadata": '{"ls_retriever_name": "bm25", "topic": "hybrid cars"}'}, "bm25", "sparse", "bm25"),
        ("search", {"metadata": '{"topic": "hybrid cars"}'}, "dense", "dense", "dense"),
        ("EnsembleRetriever", {}, "hybrid", "dense", "score"),
    ],
)
def test_a_retriever_is_dense_unless_it_says_that_it_looks_for_words(
    name: str, attributes: dict[str, Any], strategy: str, stage: str, score: str
) -> None:
    fact = only(mapped(retriever({"id": "a", "score": 2.0}, **attributes), name=name))
    assert fact.strategy == strategy
    assert getattr(fact.stage_ms, stage) == 5.0
    assert ranked(fact, score) == [("a", 2.0)]


@pytest.mark.parametrize(
    ("document", "namings"),
    [
        ({"id": "a"}, [["a"]]),
        ({"id": 7}, [["7"]]),
        ({"id": UUID, "metadata": '{"name": "a"}'}, [["a"]]),
        ({"id": "doc-1", "metadata": '{"tool_name": "a"}'}, [["doc-1"], ["a"]]),
        ({"id": "a", "metadata": '{"skill_id": "a"}'}, [["a"]]),
        ({"metadata": "{'tool': {'name': 'a'}}"}, [["a"]]),
        ({"metadata": {"tool": "a"}}, [["a"]]),
        ({"content": '{"type": "function", "function": {"name": "a"}}'}, [["a"]]),
        ({"content": '{"name": "a", "description": "b"}'}, [["a"]]),
        ({"id": "1", "metadata": '{"name": "A"}', "content": '{"name": "a"}'}, [["1"], ["A"], ["a"]]),
        ({"content": "a"}, []),
        ({"id": UUID, "content": "{not JSON", "metadata": "[]"}, []),
        ({"score": 1.0}, []),
    ],
    ids=str,
)
def test_how_a_document_names_a_skill(document: dict[str, Any], namings: list[list[str]]) -> None:
    facts = retrievals(mapped(retriever(document)))
    assert [[candidate.skill_id for candidate in fact.candidates] for fact in facts] == namings
    assert len({fact.event_id for fact in facts}) == len(facts)


@pytest.mark.parametrize(
    "output",
    [
        [{"id": "a", "score": 0.5}],
        {"documents": [{"page_content": "A", "metadata": {"name": "a", "x": 1}, "score": 0.5}]},
        {"documents": [{"lc": 1, "type": "constructor", "kwargs": {"metadata": {"name": "a"}}, "score": 0.5}]},
        {"nodes": [{"node": {"id_": UUID, "metadata": {"name": "a"}}, "score": 0.5}]},
        {"result": {"results": [{"id": "a", "relevance_score": "0.5"}]}},
        [[{"page_content": "A", "metadata": {"tool_name": "a"}}, 0.5]],
        [{"namespace": ["tools"], "key": "a", "value": {"description": "A"}, "score": 0.5}],
    ],
    ids=str,
)
def test_documents_as_json_in_the_output(output: Any) -> None:
    attributes = {"openinference.span.kind": "RETRIEVER", "output.value": json.dumps(output)}
    assert ranked(only(mapped(attributes)), "dense") == [("a", 0.5)]


@pytest.mark.parametrize(
    "value",
    ["find it", '{"query": "find it"}', '{"input": {"query_str": "find it"}}', '{"params": {"query": "find it"}}'],
)
def test_the_query_of_a_retriever(value: str) -> None:
    assert only(mapped(retriever({"id": "a"}, **{"input.value": value}))).query == "find it"


def test_a_query_that_reads_as_a_number_is_one() -> None:
    assert only(mapped(retriever({"id": "a"}, **{"input.value": "2024"}))).query == "2024"


def test_an_openinference_reranker() -> None:
    attributes = (
        {"openinference.span.kind": "RERANKER", "reranker.query": "q", "reranker.model_name": "m", "reranker.top_k": 2}
        | flattened("reranker.input_documents", {"id": "a", "score": 0.9}, {"id": "b", "score": 0.8}, {"id": "c"})
        | flattened("reranker.output_documents", {"id": "b", "score": 7.5}, {"id": "a", "score": 1.5})
    )
    fact = only(mapped(attributes))
    assert ranked(fact, "rerank", "score", "dense") == [("b", 7.5, 0.8, None), ("a", 1.5, 0.9, None)]
    assert (fact.query, fact.strategy, fact.model) == ("q", "rerank", None)
    assert fact.stage_ms is not None
    assert (fact.stage_ms.rerank, fact.stage_ms.dense) == (5.0, None)


def test_a_reranker_as_json() -> None:
    output = json.dumps([{"id": "b", "score": 7.5}])
    attributes = {"openinference.span.kind": "RERANKER", "input.value": '{"query": "q"}', "output.value": output}
    fact = only(mapped(attributes))
    assert (fact.query, ranked(fact, "rerank")) == ("q", [("b", 7.5)])


@pytest.mark.parametrize("as_text", [False, True])
def test_an_opentelemetry_retrieval(as_text: bool) -> None:
    documents = [{"id": "b", "score": 0.9}, {"id": "a", "score": 0.5, "content": "text"}]
    fact = only(
        mapped(
            {
                "gen_ai.operation.name": "retrieval",
                "gen_ai.retrieval.documents": json.dumps(documents) if as_text else documents,
                "gen_ai.retrieval.query.text": "q",
                "gen_ai.request.model": "embedder",
                "gen_ai.conversation.id": "s",
            }
        )
    )
    assert ranked(fact, "dense") == [("b", 0.9), ("a", 0.5)]
    assert (fact.query, fact.session_id, fact.model, fact.strategy) == ("q", "s", None, "dense")


def test_a_rerank_that_tells_places_only() -> None:
    fact = only(
        mapped(
            {
                "gen_ai.operation.name": "rerank",
                "gen_ai.rerank.input_documents": [{"id": "a", "score": 0.9}, {"id": "b", "score": 0.8}],
                "gen_ai.rerank.output_documents": [
                    {"index": 1, "relevance_score": 0.7},
                    {"index": 0, "relevance_score": 0.2},
                    {"index": 9, "relevance_score": 0.1},
                ],
            }
        )
    )
    assert ranked(fact, "rerank", "score") == [("b", 0.7, 0.8), ("a", 0.2, 0.9)]


def test_a_retriever_that_langsmith_traced() -> None:
    documents = [{"page_content": "A", "metadata": {"name": "a"}, "type": "Document"}]
    fact = only(
        mapped(
            {
                "langsmith.span.kind": "retriever",
                "gen_ai.prompt": '{"query": "q"}',
                "gen_ai.completion": json.dumps({"documents": documents}),
            }
        )
    )
    assert (fact.query, ranked(fact, "dense")) == ("q", [("a", None)])


def test_results_of_a_vector_database_are_events() -> None:
    results = [
        {"db.query.result.id": "b", "db.query.result.score": 0.9},
        {"db.query.result.id": UUID, "db.query.result.distance": 0.4, "db.query.result.metadata": '{"name": "a"}'},
    ]
    events = [SpanEvent(name="db.query.result", time_ns=START, attributes=result) for result in results]
    facts = retrievals(mapped({"db.system": "pinecone", "db.operation": "query"}, events=events))
    assert [ranked(fact, "dense") for fact in facts] == [[("b", 0.9)], [("a", None)]]


def test_a_vector_database_that_tells_no_results_is_nobodys() -> None:
    assert map_span(span(attributes={"db.system": "pinecone", "db.operation": "query"}), Settings()) is None


TOOLS = [
    {"name": "b", "description": "B", "inputSchema": {"type": "object", "properties": {"q": {}}}},
    {"name": "a", "_meta": {"score": 0.5}},
]


def test_listed_tools_are_offered() -> None:
    result = json.dumps({"result": {"tools": [TOOLS[0]]}})
    facts = mapped({"mcp.method.name": "tools/list", "mcp.response.value": result, "input.value": "tools/list"})
    assert facts.selections == []
    (offered,) = facts.offered_skills
    assert (offered.skill_id, offered.description, offered.time) == ("b", "B", START)
    assert offered.parameters_schema == {"type": "object", "properties": {"q": {}}}


@pytest.mark.parametrize(
    ("tools", "request_", "query"),
    [(TOOLS[:1], {"mcp.request.argument": '{"params": {"query": "q"}}'}, "q"), (TOOLS, {}, None)],
    ids=["by a query", "with scores"],
)
def test_listed_tools_that_were_searched_are_ranked(
    tools: list[dict[str, Any]], request_: dict[str, Any], query: str | None
) -> None:
    facts = mapped({"mcp.method.name": "tools/list", "output.value": json.dumps({"tools": tools})} | request_)
    fact = only(facts)
    assert fact.query == query
    assert [candidate.skill_id for candidate in fact.candidates] == [tool["name"] for tool in tools]
    assert [offered.skill_id for offered in facts.offered_skills] == [tool["name"] for tool in tools]


def test_a_list_without_tools_is_nobodys() -> None:
    for result in ({}, {"output.value": "[]"}, {"output.value": '{"tools": [{"title": 1}]}'}):
        assert map_span(span(attributes={"mcp.method.name": "tools/list"} | result), Settings()) is None


def test_a_search_that_found_nothing_says_nothing() -> None:
    assert len(mapped(retriever(**{"input.value": "q"}))) == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["documents", "document", "node", "id", "score", "metadata", "tool"]), inner)
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_result_is_too_odd(value: Any) -> None:
    for document in documents_in(value):
        assert all(name is None or isinstance(name, str) for name in document.names)
    mapped({"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": value})


def test_from_spans_to_a_ranked_selection(tmp_path: Path) -> None:
    tools = [{"name": name, "description": name.upper()} for name in ("a", "b", "c")]
    found = [
        {"id": UUID, "metadata": f'{{"name": "{name}"}}', "score": score} for name, score in (("c", 0.9), ("a", 0.4))
    ]
    inputs = [{"metadata": document["metadata"], "score": document["score"]} for document in found]
    spans = [
        span(attributes=retriever(*found, **{"input.value": "find it"}), span_id="1" * 16),
        span(
            attributes={"openinference.span.kind": "RERANKER"}
            | flattened("reranker.input_documents", *inputs)
            | flattened("reranker.output_documents", inputs[1] | {"score": 3.0}, inputs[0] | {"score": 2.0}),
            span_id="2" * 16,
            start_ns=START + 5_000_000,
            end_ns=START + 8_000_000,
        ),
        span(attributes=retriever({"id": "document"}), span_id="3" * 16),
        span(
            attributes={
                "openinference.span.kind": "LLM",
                **{f"llm.tools.{n}.tool.json_schema": json.dumps(tool) for n, tool in enumerate(tools)},
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "c",
            },
            start_ns=START + 9_000_000,
            end_ns=START + 12_000_000,
        ),
    ]
    facts = Facts()
    for one in spans:
        told = map_span(one, Settings())
        assert told is not None
        facts.extend(told)
    house = House(tmp_path)
    redactor = Redactor(Settings(data_dir=tmp_path), b"k" * 32)
    frames = to_frames("default", facts, received_at=START, source_request="1-0", redactor=redactor)
    for table, frame in frames.items():
        house.lake.append(table, frame)
    selection = house.row("select * from selections")
    assert (selection["trace_id"], selection["span_id"]) == (TRACE, SPAN)
    assert (selection["ranked"], selection["strategy"], selection["query"]) == (True, "dense", "find it")
    shown = house.rows("select skill_id, dense, rerank, picked, skipped from candidates order by rank")
    assert [tuple(row.values()) for row in shown] == [
        ("a", 0.4, 3.0, False, True),
        ("c", 0.9, 2.0, True, False),
        ("b", None, None, False, False),
    ]
    stages = {stage: took for stage, took in selection["stage_ms"].items() if took is not None}
    assert stages == {"dense": 5.0, "rerank": 3.0, "total": 8.0}


def test_secrets_in_the_names_of_documents_are_masked(tmp_path: Path) -> None:
    facts = mapped(retriever({"id": "invoices of bob@example.com"}, {"id": "get_weather"}))
    redactor = Redactor(Settings(data_dir=tmp_path), b"k" * 32)
    frames = to_frames("default", facts, received_at=START, source_request="1-0", redactor=redactor)
    (found,) = frames["selections"]["candidates"].to_list()
    assert [candidate["skill_id"] for candidate in found] == ["invoices of [email]", "get_weather"]


def test_what_a_search_found_is_not_learned_as_a_skill() -> None:
    facts = mapped(retriever({"id": "document"}))
    assert (
        ObservedSkills(Redactor(Settings(), b"k" * 32)).learn(
            "default", Offers.of(facts.offered, facts.selections, START)
        )
        == []
    )
