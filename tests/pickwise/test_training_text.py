from __future__ import annotations

from typing import Any

from pickwise.training_text import training_lines

EVIDENCE: dict[str, Any] = {
    "groups": {"train": 1_000, "validation": 200, "test": 600},
    "compared_with": "score before any model",
    "ndcg_at_5": {"before": 0.41, "after": 0.62},
    "difference": {"delta": 0.2, "low": 0.1, "high": 0.3, "effective_sample": 310.4, "picks": 512, "sessions": 170},
    "off_policy": {
        "lists": 230,
        "new": {"dm": 0.3, "ips": 0.32, "snips": 0.31, "dr": 0.3333},
        "old": {"dm": 0.3, "ips": 0.21, "snips": 0.2, "dr": 0.25},
        "difference": {"delta": 0.0833, "low": -0.01, "high": 0.2},
    },
    "guards": [{"name": "golden_set", "outcome": "not_evaluated", "detail": "0 labelled turns", "values": {"n": 0}}],
    "importance": {"dense": 10.0, "history_centroid": 30.0, "age_log": 0.0},
    "theta": {
        "known": {"steep": [1.0, 0.22, 0.08, 0.08, 0.08, 0.08]},
        "position_factors": {"steep": [1.0, 0.3], "flat": [1.0, 0.6]},
    },
    "examination": {
        "steep": {"source": "randomized", "picks": 420, "low": [1.0, 0.1, 0, 0, 0], "high": [1.0, 0.4, 0.2, 0.2, 0.2]},
        "flat": {"source": "unknown", "picks": 12},
    },
}


def test_says_what_was_decided_and_why() -> None:
    training = {"decision": "promoted", "version": "m1", "reason": "better on later picks", "evidence": EVIDENCE}
    assert list(training_lines(training)) == [
        "promoted m1: better on later picks",
        "  lists: 1,000 to train on, 200 to choose by, 600 later ones to judge on; compared with score before any "
        "model",
        "                                                before   after  difference, 95 % interval",
        "  NDCG@5 of later succeeded picks, debiased      0.410   0.620",
        "  DCG of them, what the gate decides by                         +0.200 [+0.100, +0.300]; 512 picks in 170 "
        "sessions, worth 310 equal ones",
        "  succeeded picks a shuffled list                0.250   0.333  +0.083 [-0.010, +0.200]; doubly robust, 230 "
        "lists",
        "  guards",
        "    golden set      not evaluated  0 labelled turns",
        "  what the model looks at: history_centroid 75%, dense 25%",
        "  how far down they look: chance that a rank is looked at, against rank 1, for ranks 1 to 5",
        "    flat: 1.00 0.60, from position factors of this model (12 picks in shuffled lists are too few)",
        "    steep: 1.00 0.22 [0.10, 0.40] 0.08 [0.00, 0.20] 0.08 [0.00, 0.20] 0.08 [0.00, 0.20], from 420 picks in "
        "shuffled lists",
    ]


def test_few_shuffled_lists_are_not_shown() -> None:
    evidence = EVIDENCE | {"off_policy": EVIDENCE["off_policy"] | {"lists": 199}}
    lines = training_lines({"decision": "kept", "version": "m1", "reason": "r", "evidence": evidence})
    assert not any("doubly robust" in line for line in lines)


def test_a_refusal_is_short() -> None:
    refused = {"decision": "refused", "version": None, "reason": "0 lists", "evidence": {"turns": 0, "seed": 7}}
    assert list(training_lines(refused)) == ["refused: 0 lists"]


def test_nothing_known_of_a_model_is_said() -> None:
    evidence = {"examination": {"": {"source": "unknown", "picks": 3}}}
    lines = list(training_lines({"decision": "refused", "reason": "r", "evidence": evidence}))
    assert lines[-1] == "    (model not told): not known yet, 3 picks in shuffled lists"
