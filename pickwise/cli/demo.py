"""``pickwise demo``: a service of its own around ``demo.run``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pickwise.cli.options import UserError, console, settings_from, writable
from pickwise.settings import Settings

#: The demo's alerts are looked at this often, so that one fires and resolves within it, seconds.
ALERT_INTERVAL_S = 2.0


def run_demo(data_dir: Path | None, *, leave: bool, turns: int, after_turns: int, seed: int) -> None:
    """Start a service on free ports and play the demo against it; stay up unless ``leave``."""
    from demo.receiver import AlertReceiver
    from demo.run import alert_rules_path, run
    from gateway.parts import service_of
    from gateway.supervisor import StartError

    folder = data_dir or Path(tempfile.mkdtemp(prefix="pickwise-demo-"))
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty: the demo wants a folder of its own, give another --data-dir")
    writable(settings_from(data_dir=folder))
    with AlertReceiver() as receiver:
        settings = _settings(folder, alert_rules_path(), receiver.url)
        try:
            service, addresses = service_of(settings)
            service.start()
        except StartError as error:
            raise UserError(str(error)) from error
        try:
            run(
                addresses["http"],
                data_dir=folder,
                settings=settings,
                console=console,
                exit=leave,
                turns=turns,
                after_turns=after_turns,
                seed=seed,
                jobs=_Commands(folder),
                receiver=receiver,
            )
            console.print(f"\nLook again: [bold]pickwise report --data-dir {folder}[/bold]", soft_wrap=True)
            if not leave:
                console.print(f"Dashboard: [bold]{addresses['dashboard']}[/bold]")
                service.run()
        finally:
            service.stop()


def _settings(folder: Path, rules: Path, webhook: str) -> Settings:
    """The demo's settings, also for the parts: they read them from the environment."""
    values = {
        "alert_rules": str(rules),
        "alert_interval_s": str(ALERT_INTERVAL_S),
        "webhook_urls": json.dumps([webhook]),
        "weights_refresh_s": "15",
        "model_poll_s": "2",
        "require_keys": "false",  # its folder is its own, and its agents have none
    }
    os.environ.update({f"PICKWISE_{name.upper()}": value for name, value in values.items()})
    return settings_from(data_dir=folder, http_port=0, grpc_port=0, dashboard_port=0)


class _Commands:
    """The jobs, as an operator runs them: commands beside the running service."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def nightly(self) -> dict[str, Any]:
        return self._json("nightly")

    def train(self) -> dict[str, Any]:
        return self._json("train")

    def _json(self, *arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "pickwise.cli", *arguments, "--data-dir", str(self._folder), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UserError(f"{' '.join(arguments)} failed: {done.stderr.strip()}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
