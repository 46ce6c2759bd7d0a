"""The command line: help that teaches, errors in one line that name the mend, and empty folders that are no error."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from collector.control import Control
from collector.lock import FolderLock
from gateway.faults import last_faults
from pickwise.cli import app, main
from pickwise.cli.options import UserError, _warn_of_unknown_variables

runner = CliRunner()

COMMANDS = [
    *("serve", "collect", "ranker", "jobs", "dashboard", "demo", "import", "export", "sql", "report", "metrics"),
    *("nightly", "train", "doctor"),
]
GROUPS = {
    "weights": ("show", "history", "rollback", "interleave"),
    "alerts": ("list", "test"),
    "registry": ("import", "from-mcp", "review"),
}


def run_main(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """The exit code and what stderr says, as a shell sees them."""
    monkeypatch.setattr(sys, "argv", ["pickwise", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    return code if isinstance(code, int) else 1, capsys.readouterr().err


def test_help_lists_every_command() -> None:
    text = runner.invoke(app, ["--help"]).output
    assert [name for name in (*COMMANDS, *GROUPS) if name not in text] == []
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in text


@pytest.mark.parametrize(
    "command", [[name] for name in COMMANDS] + [[g, c] for g, names in GROUPS.items() for c in names]
)
def test_every_command_has_help_and_a_data_folder(command: list[str]) -> None:
    done = runner.invoke(app, [*command, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "--data-dir" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["metrics", "acceptance_rate"],
        ["metrics", "stage_latency_ms", "--by", "skill"],
        ["report"],
        ["confusion"],
        ["sql", "select * from calls"],
        ["alerts"],
        ["alerts", "list"],
        ["weights"],
        ["weights", "show"],
        ["weights", "history"],
        ["nightly"],
        ["train"],
        ["registry", "review"],
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_an_empty_folder_is_no_error(tmp_path: Path, arguments: list[str], as_json: bool) -> None:
    done = runner.invoke(app, [*arguments, "--data-dir", str(tmp_path / "data"), *(["--json"] if as_json else [])])
    assert done.exit_code == 0, done.output
    if as_json:
        json.loads(done.stdout)


def test_train_prints_its_decision_and_nothing_else(tmp_path: Path) -> None:
    document: dict[str, Any] = json.loads(runner.invoke(app, ["train", "--json", "--data-dir", str(tmp_path)]).stdout)
    assert document.keys() == {"decision", "version", "reason", "evidence"}
    assert document["decision"] == "refused"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["metrics", "nonsense"], "acceptance_rate"),
        (["metrics", "acceptance_rate", "--from", "yesterday"], "--from"),
        (["sql", "select * from nowhere"], "nowhere"),
        (["sql", "drop table calls"], "SELECT"),
        (["weights", "rollback", "v0"], "v0"),
        (["alerts", "test"], "PICKWISE_WEBHOOK_URLS"),
        (["weights", "--json", "show"], "behind the command"),
        (["nightly", "--date", "2200-01-01"], "date"),
        (["nightly", "--date", "0001-01-01"], "date"),
        (["sql", 'select * from "[/bold]"'], "[/bold]"),
        (["export", __file__], "can't be written: File exists"),
        (["export", "/proc/nowhere"], "TARGET: /proc/nowhere can't be written: No such file"),
        (["collect", "--host", "0.0.0.0"], "--insecure"),
        (["dashboard", "--host", "0.0.0.0"], "--insecure"),
        (["collect", "--host", "nohost.invalid"], "can't be resolved"),
        (["collect", "--http-port", "5555", "--grpc-port", "5555"], "--http-port and --grpc-port are both 5555"),
        (["serve", "--http-port", "5555", "--dashboard-port", "5555"], "--http-port and --dashboard-port"),
    ],
)
def test_errors_are_one_line_with_the_mend(
    tmp_path: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = run_main(capsys, monkeypatch, *arguments, "--data-dir", str(tmp_path))
    assert code == 1
    assert text.startswith("error: ")
    assert says in text
    assert "Traceback" not in text


WRITERS = [
    *(["serve"], ["collect"], ["jobs"], ["demo", "--exit"], ["import", __file__, "--format", "events"], ["nightly"]),
    *(["train"], ["weights"], ["weights", "history"], ["weights", "rollback", "v1"], ["replay"], ["retention"]),
    *(["forget", "--session", "s"], ["keys", "create"], ["keys", "list"], ["keys", "revoke", "k"]),
    ["registry", "import", __file__],
]
ANSWERERS = [["sql", "select 1"], ["report"], ["metrics", "no_match_rate"], ["alerts"], ["registry", "review"]]
READERS = [*ANSWERERS, ["dashboard"], ["export"], ["ranker", "--ranker-socket", "s"]]


@pytest.mark.parametrize("command", WRITERS + READERS, ids=" ".join)
def test_a_data_folder_that_is_none_is_named_with_the_mend(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file/under"):
        done = runner.invoke(app, [*command, "--data-dir", str(path)])
        assert isinstance(done.exception, UserError), done.output
        assert str(done.exception).startswith(f"--data-dir: {path}: ")
        assert str(done.exception).endswith("PICKWISE_DATA_DIR")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that nobody can write to")
@pytest.mark.parametrize("command", WRITERS, ids=" ".join)
def test_a_data_folder_that_cannot_be_written_to_is_named(command: list[str]) -> None:
    done = runner.invoke(app, [*command, "--data-dir", "/proc/self/fdinfo"])
    assert isinstance(done.exception, UserError), done.output
    assert any(said in str(done.exception) for said in ("it can't be written to (", "is not empty"))  # demo: empty ones


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is closed to root")
def test_a_file_of_the_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "control.sqlite").touch(mode=0o400)
    done = runner.invoke(app, ["nightly", "--data-dir", str(tmp_path)])
    assert "this user may not write to: control.sqlite" in str(done.exception)


@pytest.mark.parametrize("command", ANSWERERS, ids=" ".join)
def test_a_reader_says_that_its_folder_is_missing_and_makes_none(tmp_path: Path, command: list[str]) -> None:
    done = runner.invoke(app, [*command, "--data-dir", str(tmp_path / "absent")])
    assert done.exit_code == 0
    assert "does not exist" in done.stderr
    assert "--data-dir or PICKWISE_DATA_DIR" in done.stderr
    assert not (tmp_path / "absent").exists()


def test_a_folder_in_use_is_named_with_its_holder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FolderLock(tmp_path)
    lock.acquire()
    try:
        for command in (["import", __file__, "--format", "events"], ["forget", "--session", "s"]):
            code, text = run_main(capsys, monkeypatch, *command, "--data-dir", str(tmp_path))
            assert code == 1
            assert f"in use by process {os.getpid()} on " in text
            assert "--data-dir" in text
    finally:
        lock.release()


def test_a_second_service_is_refused_before_it_writes_to_the_logs_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "collect.log").write_text("of the first\n")
    lock = FolderLock(tmp_path)
    lock.acquire()
    try:
        ports = ["--http-port", "0", "--grpc-port", "0", "--dashboard-port", "0"]
        code, text = run_main(capsys, monkeypatch, "serve", *ports, "--data-dir", str(tmp_path))
    finally:
        lock.release()
    assert code == 1
    assert text.startswith(f"error: {tmp_path} is in use by process {os.getpid()} on ")
    assert [(log.name, log.read_text()) for log in (tmp_path / "logs").iterdir()] == [("collect.log", "of the first\n")]


def test_a_project_or_a_window_that_cannot_be_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ["--data-dir", str(tmp_path)]
    for command in (["report"], ["metrics", "acceptance_rate"], ["weights", "show"], ["alerts", "list"]):
        code, text = run_main(capsys, monkeypatch, *command, "--project", "a/b", *folder)
        assert (code, text.strip()) == (1, "error: --project: expected 1 to 64 of A-Z a-z 0-9 . _ -, got 'a/b'")
    window = ["--from", "2026-01-02T00:00:00Z", "--to", "2026-01-01T00:00:00Z"]
    code, text = run_main(capsys, monkeypatch, "report", *window, *folder)
    assert (code, text.startswith("error: --to: expected a time after --from")) == (1, True)


def test_an_unknown_variable_is_warned_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_DATADIR", "x")
    _warn_of_unknown_variables.cache_clear()
    said = [runner.invoke(app, ["alerts", "--data-dir", str(tmp_path)]).stderr for _ in range(2)]
    assert ["did you mean PICKWISE_DATA_DIR?" in text for text in said] == [True, False]


def test_a_metric_without_a_value_says_why(tmp_path: Path) -> None:
    folder = ["--data-dir", str(tmp_path)]
    for by in ([], ["--by", "model"]):
        text = runner.invoke(app, ["metrics", "top1_acceptance_rate", *by, *folder]).stdout
        assert text == "top1_acceptance_rate: no ranked selections in the window: see docs/trace.md\n"
    assert "Failed calls ÷ finished calls" in runner.invoke(app, ["metrics", "failed_tool_rate", *folder]).stdout


def test_nothing_to_forget_and_nothing_to_replay_are_said(tmp_path: Path) -> None:
    folder = ["--data-dir", str(tmp_path)]
    done = runner.invoke(app, ["forget", "--session", "nosuch", *folder])
    assert (done.exit_code, str(done.exception)[:39]) == (1, "no session nosuch in project default: n")
    done = runner.invoke(app, ["forget", "--session", "nosuch", "--json", *folder])
    assert (done.exit_code, json.loads(done.stdout)["archived_items"]) == (1, 0)
    done = runner.invoke(app, ["replay", "--from", "2100-01-01T00:00:00Z", *folder])
    assert (done.exit_code, done.stdout[:40]) == (0, "No archived request lies in that window:")
    assert "of project default is kept" in runner.invoke(app, ["replay", *folder]).stdout
    done = runner.invoke(app, ["replay", "--from", "2026-02-01T00:00:00Z", "--to", "2026-01-01T00:00:00Z", *folder])
    assert (done.exit_code, str(done.exception)[:35]) == (1, "--to: expected a time after --from ")


def test_forget_counts_stored_rows_and_says_so(tmp_path: Path) -> None:
    events, folder = tmp_path / "events.jsonl", ["--data-dir", str(tmp_path / "data")]
    call: dict[str, Any] = {
        "type": "call",
        "call_id": "c",
        "skill_id": "fetch",
        "session_id": "s",
        "trace_id": "a" * 32,
    }
    phases = [call | {"phase": phase, "ok": True} for phase in ("invoke", "validate", "exec")]
    events.write_text("".join(json.dumps(phase) + "\n" for phase in phases))
    assert runner.invoke(app, ["import", str(events), "--format", "events", *folder]).exit_code == 0
    shown = json.loads(runner.invoke(app, ["sql", "select call_id from calls", "--json", *folder]).stdout)
    assert shown == [{"call_id": "c"}]
    said = runner.invoke(app, ["forget", "--session", "s", *folder]).stdout
    assert "stored rows: 3 of calls" in said
    assert "`pickwise sql` folds those about one thing into one row" in said


def test_the_weights_follow_the_night(tmp_path: Path) -> None:
    entries, events = tmp_path / "skills.jsonl", tmp_path / "events.jsonl"
    folder = ["--data-dir", str(tmp_path / "data")]
    entries.write_text('{"skill_id": "fetch"}\n')
    call = {"type": "call", "skill_id": "fetch", "ok": False, "error_kind": "timeout"}
    events.write_text("".join(json.dumps(call | {"event_id": f"c{i}"}) + "\n" for i in range(20)))
    for path, name in ((entries, "skills"), (events, "events")):
        assert runner.invoke(app, ["import", str(path), "--format", name, *folder]).exit_code == 0
    assert runner.invoke(app, ["nightly", *folder]).exit_code == 0
    served = json.loads(runner.invoke(app, ["weights", "--json", *folder]).stdout)["skills"]["fetch"]
    assert (served["status"], served["rollout_fraction"]) == ("degraded", 0.1)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_night_that_fails_stops_no_other_project(
    tmp_path: Path, as_json: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, events = tmp_path / "data", tmp_path / "events.jsonl"
    events.write_text('{"type": "call", "skill_id": "fetch", "ok": true}\n')
    for project in ("a", "b", "c"):
        command = ["import", str(events), "--format", "events", "--data-dir", str(data), "--project", project]
        assert runner.invoke(app, command).exit_code == 0
    with closing(Control(data)) as control:
        control.put("nightly/b", {"days": "damaged", "through": None})
    code, text = run_main(capsys, monkeypatch, "nightly", "--data-dir", str(data), *(["--json"] if as_json else []))
    assert code == 1
    assert "Traceback" not in text
    assert "error: project b: AttributeError: " in text
    assert [(fault.job, fault.project) for fault in last_faults(data)] == [("nightly", "b")]
    with closing(Control(data)) as control:
        assert control.items("nightly/").keys() == {"a", "b", "c"}
        assert control.items("weights/").keys() >= {"a", "c"}
        control.put("nightly/b", None)
    done = runner.invoke(app, ["nightly", "--json", "--data-dir", str(data)])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["projects"].keys() == {"a", "b", "c"}
    assert not last_faults(data)


def test_stored_text_is_shown_as_it_is(tmp_path: Path) -> None:
    name, folder = "[/bold] [red]", ["--data-dir", str(tmp_path / "data")]
    events = tmp_path / "events.jsonl"
    events.write_text(json.dumps({"type": "call", "skill_id": name, "ok": False, "error_kind": "timeout"}))
    assert runner.invoke(app, ["import", str(events), "--format", "events", *folder]).exit_code == 0
    for command in (
        ["metrics", "failed_tool_rate", "--by", "skill"],
        ["sql", f'select skill_id as "{name}" from calls'],
    ):
        done = runner.invoke(app, [*command, *folder], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.exception
        assert name in done.output
    assert runner.invoke(app, ["report", "--by", "skill", *folder]).exit_code == 0


def test_a_wrong_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_FLUSH_EVENTS", "-3")
    done = runner.invoke(app, ["report", "--data-dir", str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert "flush_events" in str(done.exception)


def test_registry_review_is_strict_on_request(tmp_path: Path) -> None:
    entries = tmp_path / "skills.jsonl"
    entries.write_text('{"skill_id": "a"}\n')
    folder = str(tmp_path / "data")
    assert runner.invoke(app, ["registry", "import", str(entries), "--data-dir", folder]).exit_code == 0
    findings = json.loads(runner.invoke(app, ["registry", "review", "--data-dir", folder, "--json"]).stdout)
    assert {"code", "message", "skill_id", "field", "severity"} <= findings[0].keys()
    assert runner.invoke(app, ["registry", "review", "--data-dir", folder]).exit_code == 0
    assert runner.invoke(app, ["registry", "review", "--strict", "--data-dir", folder]).exit_code == 1


def test_a_strict_import_with_an_error_writes_nothing_and_says_why(tmp_path: Path) -> None:
    entries = tmp_path / "skills.jsonl"
    entries.write_text('{"skill_id": "a"}\n{"skill_id": "b", "description": "Books a table. Use when asked to."}\n')
    folder = ("--data-dir", str(tmp_path / "data"))
    done = runner.invoke(app, ["registry", "import", str(entries), "--strict", *folder])
    assert isinstance(done.exception, UserError)
    assert "a: " in str(done.exception)
    assert "b: " not in str(done.exception)
    assert json.loads(runner.invoke(app, ["sql", "select skill_id from skills", "--json", *folder]).stdout) == []
    entries.write_text(entries.read_text().splitlines()[1])
    assert runner.invoke(app, ["registry", "import", str(entries), "--strict", *folder]).exit_code == 0


def test_an_import_with_nothing_good_exits_1_and_names_the_line(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"type": "call"}\n')
    done = runner.invoke(
        app, ["import", str(events), "--format", "events", "--data-dir", str(tmp_path / "d"), "--json"]
    )
    assert done.exit_code == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert "events.jsonl:1" in problem
    assert "skill_id" in problem


_HOSTILE = "a\x1b[31mb\x1b]0;title\x07\u202ec\x9b1m\rd"


@pytest.mark.parametrize(
    "arguments",
    [
        ["sql", "select skill_id, error_message, agent from calls"],
        ["sql", "select *, 'x' as y from calls"],
        ["sql", f'select * from "{_HOSTILE}"'],
        ["metrics", "failed_tool_rate", "--by", "skill,agent"],
        ["report", "--by", "agent"],
        ["weights", "show"],
        ["registry", "review"],
        ["forget", "--session", _HOSTILE],
        ["confusion", "--skill", _HOSTILE],
    ],
)
def test_text_from_outside_moves_no_cursor(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    events, entries, folder = tmp_path / "events.jsonl", tmp_path / "skills.jsonl", ["--data-dir", str(tmp_path / "d")]
    call = {"type": "call", "event_id": "c", "skill_id": _HOSTILE, "agent": _HOSTILE, "ok": False}
    events.write_text(json.dumps(call | {"error_message": _HOSTILE, "time": "2026-01-01T00:00:00Z"}))
    entries.write_text(json.dumps({"skill_id": _HOSTILE, "description": _HOSTILE}))
    for format, path in (("events", events), ("skills", entries)):
        assert runner.invoke(app, ["import", str(path), "--format", format, *folder]).exit_code == 0
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["pickwise", *arguments, *folder])
    with suppress(SystemExit):
        main()
    written = capsys.readouterr()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", written.out + written.err)
