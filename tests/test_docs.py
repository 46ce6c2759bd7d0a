"""The docs say what the declarations say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pickwise.settings import Settings

ROOT = Path(__file__).resolve().parents[1]


def test_generated_pages_are_current() -> None:
    script = [sys.executable, str(ROOT / "scripts/generate_docs.py"), "--check"]
    checked = subprocess.run(script, capture_output=True, text=True, check=False, cwd=ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_setting_says_what_it_is() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_links_between_pages_resolve() -> None:
    import re

    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
