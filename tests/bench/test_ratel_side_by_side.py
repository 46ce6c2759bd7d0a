"""The comparison with Ratel, a few turns; the endpoint by itself."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from pathlib import Path

import httpx
import numpy as np
import pytest

from bench import learning
from bench.ratel_side_by_side import METHODS, OURS, compare, embeddings_endpoint, markdown
from ranker.vectors import HashedWords, VectorCache

FOLDER = Path(tempfile.gettempdir()) / "pickwise-rivals"


def test_the_endpoint_gives_our_vectors(tmp_path: Path) -> None:
    vectors = VectorCache(tmp_path, HashedWords())
    with embeddings_endpoint(vectors) as url:
        answer = httpx.post(f"{url}/embeddings", json={"model": "any", "input": ["one text", "another"]}).json()
    given = np.array([item["embedding"] for item in answer["data"]], dtype=np.float32)
    assert np.array_equal(given, vectors.many(["one text", "another"]))


@pytest.mark.skipif(not (FOLDER / "ratel" / "ready").exists(), reason="needs the environment the bench makes")
def test_both_sides_learn_from_the_same_turns(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learning, "CACHE", tmp_path / "vectors")
    given = Namespace(
        data=shared / "data" / "ranking",
        folder=FOLDER,
        language="en",
        embedder="words",
        turns=60,
        queries=20,
        checkpoints=[60],
        seed=0,
    )
    found = compare(given)
    assert set(found) == {0, 60}
    assert {f"Ratel, {method}" for method in METHODS} | {OURS} <= set(found[60])
    assert all(quality.shape == (20, 2) for quality in found[60].values())
    assert "| 60 |" in markdown(found)
