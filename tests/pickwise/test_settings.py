"""Settings: order of sources, lists in variables, and errors that name the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from pickwise.settings import SettingsError, load_settings, unknown_variables


def test_flags_beat_variables_beat_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickwise.toml").write_text('http_port = 1\ngrpc_port = 1\nhost = "127.0.0.3"\n')
    monkeypatch.setenv("PICKWISE_GRPC_PORT", "2")
    monkeypatch.setenv("PICKWISE_HTTP_PORT", "2")
    settings = load_settings(http_port=3, grpc_port=None)
    assert (settings.http_port, settings.grpc_port, settings.host) == (3, 2, "127.0.0.3")


@pytest.mark.parametrize(
    ("value", "expected"),
    [("a,b", ["a", "b"]), ('["a", "b"]', ["a", "b"]), ("http://h/x", ["http://h/x"]), ("", []), ("[]", [])],
)
def test_a_list_in_a_variable(monkeypatch: pytest.MonkeyPatch, value: str, expected: list[str]) -> None:
    monkeypatch.setenv("PICKWISE_ALLOW_ARGUMENTS", value)
    assert load_settings().allow_arguments == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("^(Error|Unknown action)", [("^(Error|Unknown action)", "tool_error", None)]),
        ('["^Error"]', [("^Error", "tool_error", None)]),
        ('[{"pattern": "429", "error_kind": "rate_limited", "skill_id": "s"}]', [("429", "rate_limited", "s")]),
        ('{"pattern": "x"}', [("x", "tool_error", None)]),
    ],
)
def test_error_patterns_in_a_variable(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: list[tuple[str, str, str | None]]
) -> None:
    monkeypatch.setenv("PICKWISE_ERROR_PATTERNS", value)
    assert [(p.pattern, p.error_kind, p.skill_id) for p in load_settings().error_patterns] == expected


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HTTP_PORT", "many"),
        ("HTTP_PORT", "99999"),
        ("FLUSH_EVENTS", "0"),
        ("NIGHTLY_AT", "25:00"),
        ("STORE_QUERIES", "all"),
        ("WEBHOOK_URLS", '["broken'),
        ("WEBHOOK_URLS", "foo,bar"),
        ("WEBHOOK_URLS", "https://fine.example/x?sig=1, http://h:port"),
        ("ERROR_PATTERNS", "(unbalanced"),
    ],
)
def test_a_wrong_value_names_the_setting(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(f"PICKWISE_{variable}", value)
    with pytest.raises(SettingsError, match=variable.lower()):
        load_settings()


def test_a_broken_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickwise.toml").write_text("broken")
    with pytest.raises(SettingsError, match=r"pickwise\.toml"):
        load_settings()
    (tmp_path / "pickwise.toml").write_bytes(b"host = '\xff'")
    with pytest.raises(SettingsError, match=r"pickwise\.toml: expected TOML, 'utf-8' codec can't decode byte 0xff"):
        load_settings()
    (tmp_path / "pickwise.toml").write_text("no_such_setting = 1\n")
    with pytest.raises(SettingsError, match="no_such_setting"):
        load_settings()


def test_an_error_says_where_the_value_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickwise.toml").write_text("flush_events = -1\nhttp_prt = 1\ngrpc_port = 4\n")
    monkeypatch.setenv("PICKWISE_GRPC_PORT", "many")
    with pytest.raises(SettingsError) as raised:
        load_settings(http_port=-1)
    problems = {problem.partition(":")[0]: problem for problem in str(raised.value).split("; ")}
    assert problems["flush_events"].endswith("(from pickwise.toml)")
    assert problems["grpc_port"].endswith("(from PICKWISE_GRPC_PORT)")
    assert problems["http_port"].endswith("(from --http-port)")
    assert "unknown setting http_prt in pickwise.toml (did you mean http_port?)" in str(raised.value)


def test_a_variable_that_is_no_setting_is_named_with_its_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_DATADIR", "/data")
    monkeypatch.setenv("PICKWISE_HOST", "127.0.0.1")
    monkeypatch.setenv("PICKWISE_SUPERVISED", "1")
    named = [warning for warning in unknown_variables() if "FUZZ" not in warning]
    assert named == ["unknown variable PICKWISE_DATADIR is left out (did you mean PICKWISE_DATA_DIR?)"]


def test_a_webhook_may_have_a_query_as_some_services_want(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKWISE_WEBHOOK_URLS", "https://hooks.example.com/x?sig=1,http://127.0.0.1:9000")
    assert load_settings().webhook_urls == ["https://hooks.example.com/x?sig=1", "http://127.0.0.1:9000"]
