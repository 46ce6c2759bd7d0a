"""Files of labels: what is read, and that a bad line is told without taking the good ones down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.labels import Label
from analytics.labels_file import LabelFile, read_labels


def read(folder: Path, name: str, content: str | bytes) -> LabelFile:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_labels(path)


def said(found: LabelFile) -> list[str]:
    return [f"{problem.line}: {problem.reason}" for problem in found.problems]


BOOK = Label(query="book a room", expected=("hotel/book", "hotel/search"), language="en", cluster="travel")


def test_csv(tmp_path: Path) -> None:
    content = (
        "\ufeffQuery, expected ,language,tag\r\n"
        "book a room,hotel/book;hotel/search,en,travel\r\n"
        '"book a room, now",hotel/book|hotel/search,,\r\n'
        "\r\n"
        '"two\nlines","[""a;b"", ""c""]",zh,\r\n'
    )
    found = read(tmp_path, "labels.csv", content)
    assert said(found) == []
    assert found.labels == [
        BOOK,
        Label(query="book a room, now", expected=("hotel/book", "hotel/search")),
        Label(query="two\nlines", expected=("a;b", "c"), language="zh"),
    ]


@pytest.mark.parametrize("name", ["labels.jsonl", "labels.json", "labels"])
def test_json_lines(tmp_path: Path, name: str) -> None:
    lines = [
        {"query": "book a room", "expected": ["hotel/book", "hotel/search"], "language": "en", "cluster": "travel"},
        {"query": "一个房间", "relevant": "hotel/book", "owner": "me"},
        {"query": "twice", "expected_skills": [" a ", "a"], "language": None},
    ]
    found = read(tmp_path, name, "\n\n".join(json.dumps(line, ensure_ascii=False) for line in lines))
    assert said(found) == []
    assert found.labels == [
        BOOK,
        Label(query="一个房间", expected=("hotel/book",)),
        Label(query="twice", expected=("a",)),
    ]
    assert found.ignored_fields == ["owner"]


def test_one_json_array_is_read_item_by_item(tmp_path: Path) -> None:
    found = read(tmp_path, "labels.json", '[\n{"query": "a", "expected": ["x"]},\n{"query": "b"}]')
    assert found.labels == [Label(query="a", expected=("x",))]
    assert said(found) == ["2: expected: expected at least one skill_id, got nothing"]


GOOD = b'{"query": "good", "expected": ["a"]}'


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{", "expected a JSON object such as"),
        (b"[1]", "expected a JSON object, got [1]"),
        (b'{"expected": ["a"]}', "query: expected a text, got nothing"),
        (b'{"query": "  ", "expected": ["a"]}', "query: expected a text, got '  '"),
        (b'{"query": 3, "expected": ["a"]}', "query: expected a text, got 3"),
        (b'{"query": "q", "expected": []}', "expected: expected at least one skill_id, got []"),
        (b'{"query": "q", "expected": {"a": 1}}', "expected: expected at least one skill_id, got {'a': 1}"),
        (b'{"query": "q", "expected": ["a", 3]}', "expected: expected skill_ids of 1 to 512 characters, got 3"),
        (b'{"query": "q", "expected": ["' + b"x" * 513 + b'"]}', "expected: expected skill_ids of 1 to 512 characters"),
        (b'{"query": "q", "expected": [' + b'"a",' * 200 + b'"b"]}', "expected: expected at most 200 skills, got 201"),
        (b'{"query": "q", "expected": ["a"], "language": 1}', "language: expected a text, got 1"),
        (b'{"query": "\xff", "expected": ["a"]}', "expected a JSON object such as"),
        (b'{"query": "' + b"x" * 70_000 + b'", "expected": ["a"]}', "expected at most 65536 bytes a line"),
        (b"[" * 70 + b"{" * 5_000, "expected a JSON object such as"),
    ],
)
def test_a_bad_line_is_told_and_the_others_are_taken(tmp_path: Path, bad: bytes, reason: str) -> None:
    found = read(tmp_path, "labels.jsonl", GOOD + b"\n" + bad + b"\n" + GOOD.replace(b"good", b"better"))
    assert [label.query for label in found.labels] == ["good", "better"]
    (problem,) = found.problems
    assert (problem.line, problem.path) == (2, tmp_path / "labels.jsonl")
    assert problem.reason.startswith(reason)
    assert str(problem).startswith(f"{tmp_path / 'labels.jsonl'}:2: {reason}")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("q", "expected 2 cells (query, expected), got 1"),
        ("q,a,b", "expected 2 cells (query, expected), got 3"),
        (",a", "query: expected a text, got nothing"),
        ("q, ", "expected: expected at least one skill_id, got nothing"),
        ('q,"[1]"', "expected: expected skill_ids of 1 to 512 characters, got 1"),
        ('"never closed,a', "expected cells with commas between them"),
        ('"closed"too early,a', "expected cells with commas between them"),
        ("\udcff,a", "query: expected UTF-8"),
    ],
)
def test_a_bad_record_is_told_and_the_others_are_taken(tmp_path: Path, bad: str, reason: str) -> None:
    content = f'query,expected\ngood,a\n{bad}\n"better",a\n'.encode("utf-8", "surrogateescape")
    found = read(tmp_path, "labels.csv", content)
    assert [label.query for label in found.labels] == ["good", "better"]
    (problem,) = found.problems
    assert problem.line == 3
    assert problem.reason.startswith(reason)


def test_a_header_without_the_columns_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, "labels.csv", "question,skill\nq,a\n")
    assert found.labels == []
    assert said(found)[0].startswith("1: query: expected a header with the columns query, expected")
    assert "got 'question, skill'" in said(found)[0]
    for nothing in ("", "\n"):
        found = read(tmp_path, "empty.csv", nothing)
        assert found.labels == []
        assert said(found)[0].startswith("1: query: expected a header with the columns")
        assert said(found)[0].endswith("got nothing")


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1, max_size=20).filter(str.strip)


@given(rows=st.lists(st.tuples(CELLS, st.lists(CELLS, min_size=1, max_size=3)), min_size=1, max_size=8))
def test_both_layouts_say_the_same(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, list[str]]]) -> None:
    import csv
    import io

    folder = tmp_path_factory.mktemp("labels")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["query", "expected"])
    writer.writerows((query, json.dumps(skills)) for query, skills in rows)
    as_csv = read(folder, "labels.csv", text.getvalue())
    as_json = read(folder, "labels.jsonl", "\n".join(json.dumps({"query": q, "expected": s}) for q, s in rows))
    assert as_csv.problems == as_json.problems == []
    assert as_csv.labels == as_json.labels
    assert len(as_csv.labels) == len(rows)


@given(content=st.binary(max_size=300), name=st.sampled_from(["labels.csv", "labels.jsonl", "labels"]))
def test_any_file_is_read_to_its_end(tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str) -> None:
    found = read(tmp_path_factory.mktemp("labels"), name, b"query,expected\n" + content)
    for label in found.labels:
        assert label.query.strip()
        assert label.expected
