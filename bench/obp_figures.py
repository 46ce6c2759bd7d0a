"""The figures that `ranker.estimators` must give, from the Open Bandit Pipeline on the same data.

    python -m bench.obp_figures [--folder FOLDER] [--out tests/ranker/obp_figures.json]

obp 0.4.1 (2021) and the torch that it needs go into an environment of their own below the folder (minutes, once). The
data are made from a seed by the function below, with numpy alone, here and in the test: no data travel.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

REQUIREMENTS = ("obp==0.4.1", "torch==2.13.0")
SEEDS = (0, 1, 2)
_FIGURES = Path(__file__).resolve().parents[1] / "tests" / "ranker" / "obp_figures.json"


def logged(seed: int, rounds: int = 2_000, actions: int = 6, positions: int = 5) -> dict[str, NDArray[Any]]:
    """Bandit feedback in obp's form, its reward model wrong on purpose.

    action, position, reward, pscore: (rounds,); action_dist, estimated_rewards_by_reg_model: (rounds, actions,
    positions).
    """
    rng = np.random.default_rng(seed)
    utility = rng.normal(size=(rounds, actions, 1)) + 0.3 * rng.normal(size=(rounds, actions, positions))
    truth = 1 / (1 + np.exp(1 - utility))
    logging, judged = _softmax(0.5 * utility), _softmax(2 * utility + rng.normal(size=utility.shape))
    at, position = np.arange(rounds), rng.integers(positions, size=rounds)
    reached = np.cumsum(logging[at, :, position], axis=1) > rng.random((rounds, 1))
    action = reached.argmax(axis=1)
    return {
        "action": action,
        "position": position,
        "reward": (rng.random(rounds) < truth[at, action, position]).astype(np.float64),
        "pscore": logging[at, action, position],
        "action_dist": judged,
        "estimated_rewards_by_reg_model": np.clip(truth + 0.2 * rng.normal(size=truth.shape), 0.01, 0.99),
    }


def _softmax(values: NDArray[np.float64]) -> NDArray[np.float64]:
    raised = np.exp(values - values.max(axis=1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


#: Run by the Python of the environment: obp's own estimators on the arrays of a file.
_JUDGE = """
import json, sys
import numpy as np
from obp.ope import DirectMethod, DoublyRobust, InverseProbabilityWeighting, SelfNormalizedInverseProbabilityWeighting
given = dict(np.load(sys.argv[1]))
estimators = {
    "dm": DirectMethod(),
    "ips": InverseProbabilityWeighting(),
    "snips": SelfNormalizedInverseProbabilityWeighting(),
    "dr": DoublyRobust(),
}
print(json.dumps({name: float(one.estimate_policy_value(**given)) for name, one in estimators.items()}))
"""


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.obp_figures", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "pickwise-obp")
    parser.add_argument("--out", type=Path, default=_FIGURES)
    given = parser.parse_args(argv)
    python = make_environment(given.folder)
    figures = {str(seed): _figures(python, seed) for seed in SEEDS}
    made_by = f"python -m bench.obp_figures, with {', '.join(REQUIREMENTS)}"
    given.out.write_text(json.dumps({"made_by": made_by, "seeds": figures}, indent=1) + "\n")


def _figures(python: Path, seed: int) -> dict[str, float]:
    with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        np.savez(file, allow_pickle=False, **logged(seed))
        file.flush()
        told = subprocess.run([str(python), "-c", _JUDGE, file.name], check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(told.stdout)
    return found


def make_environment(folder: Path) -> Path:
    """The Python of an environment with obp, made where it is not there yet."""
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"installing {' '.join(REQUIREMENTS)} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
        (folder / "ready").touch()
    return python


if __name__ == "__main__":
    main()
