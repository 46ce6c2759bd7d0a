"""The embedder that can be taken away."""

from __future__ import annotations

import numpy as np
import pytest

from demo.outage import BreakableEmbedder
from pickwise.embed import EmbedderUnavailable, load_embedder


def test_it_is_the_real_one_until_it_is_down() -> None:
    embedder = BreakableEmbedder(load_embedder())
    assert embedder.version == load_embedder().version
    assert np.allclose(embedder.embed(["a flight"]), load_embedder().embed(["a flight"]))
    embedder.down = True
    with pytest.raises(EmbedderUnavailable):
        embedder.embed(["a flight"])
    embedder.down = False
    assert len(embedder.embed(["a flight"])) == 1
