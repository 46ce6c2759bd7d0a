"""Control state: documents, secrets, and jobs that exclude each other, also across processes."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from collector.control import DOCUMENTS, Control, ControlUnusable, JobRunning


def test_documents_are_replaced_and_forgotten(tmp_path: Path) -> None:
    control = Control(tmp_path)
    control.put("weights/a", {"version": "1"})
    control.put("weights/a", {"version": "2"})
    control.put("weights/b_c", {"version": "3"})
    assert control.get("weights/a") == {"version": "2"}
    assert control.items("weights/") == {"a": {"version": "2"}, "b_c": {"version": "3"}}
    control.put("weights/a", None)
    assert control.get("weights/a") is None


def test_a_secret_is_made_once_and_the_file_is_private(tmp_path: Path) -> None:
    first = Control(tmp_path).secret("redaction")
    assert len(first) == 32
    assert Control(tmp_path).secret("redaction") == first
    assert Control(tmp_path).secret("other") != first
    assert stat.S_IMODE((tmp_path / "control.sqlite").stat().st_mode) == 0o600


def test_a_job_excludes_itself_also_in_another_process(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom collector.control import Control, JobRunning\n"
        "try:\n    with Control(Path(sys.argv[1])).job('train', 'a/b'): print('ran')\n"
        "except JobRunning as error: print(error)\n"
    )

    def elsewhere() -> str:
        command = [sys.executable, "-c", code, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    with Control(tmp_path).job("train", "a/b"):
        assert elsewhere() == "train is already running for project a/b"
        with pytest.raises(JobRunning), Control(tmp_path).job("train", "a/b"):
            pass
    assert elsewhere() == "ran"


def test_only_a_finished_run_counts(tmp_path: Path) -> None:
    control = Control(tmp_path)
    with pytest.raises(ZeroDivisionError), control.job("nightly", "default", "2026-01-02"):
        raise ZeroDivisionError
    assert control.last_period("nightly", "default") is None
    with control.job("nightly", "default", "2026-01-01"):
        pass
    assert control.last_period("nightly", "default") == "2026-01-01"


def test_a_migration_that_is_broken_off_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = command.upgrade

    def broken_off(config: Config, revision: str) -> None:
        real(config, revision)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(command, "upgrade", broken_off)
        with pytest.raises(KeyboardInterrupt):
            Control(tmp_path)
    control = Control(tmp_path)
    control.put("k", 1)
    assert control.get("k") == 1
    control.close()


def test_a_damaged_file_is_named_with_the_mend(tmp_path: Path) -> None:
    file = tmp_path / "control.sqlite"
    file.write_bytes(b"no database at all" * 100)
    with pytest.raises(ControlUnusable, match=r"control\.sqlite is damaged \(file is not a database\): restore it"):
        Control(tmp_path)


def test_damage_that_is_met_later_is_named_too(tmp_path: Path) -> None:
    control = Control(tmp_path)
    with control.begin() as connection:
        rows = [{"key": f"alert/{n}", "value": json.dumps("x" * 500), "updated_at": 0.0} for n in range(2_000)]
        connection.execute(sa.insert(DOCUMENTS), rows)
    control.check()
    control.close()
    with closing(sqlite3.connect(tmp_path / "control.sqlite")) as plain:
        plain.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file = tmp_path / "control.sqlite"
    whole = bytearray(file.read_bytes())
    for start in range(40_000, len(whole), 8_192):
        whole[start : start + 4_096] = b"\xff" * len(whole[start : start + 4_096])
    file.write_bytes(whole)
    control = Control(tmp_path)
    with pytest.raises(ControlUnusable, match="is damaged"):
        control.check()
    with pytest.raises(ControlUnusable, match="malformed"):
        control.items("alert/")
    control.close()


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Control(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "control.sqlite")) as plain, plain:
        plain.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ControlUnusable, match=r"control\.sqlite was written by a newer version .*9999"):
        Control(tmp_path)
