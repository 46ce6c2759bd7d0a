from __future__ import annotations

import numpy as np
import pytest

from ranker.decay import DAY_S
from ranker.words import HALF_LIFE_DAYS, DescribedBy, WordHistory, query_terms

ROWS = np.array([1, 2, 9])


def test_odds_by_hand() -> None:
    words = WordHistory()
    for terms, row in ((("rain",), 1), (("rain", "tomorrow"), 1), (("train",), 2), (("tomorrow",), 2)):
        words.asked(terms, 0.0)
        words.add(row, terms, 0.0)
    # rain: in 2 of 4 queries, b = 2.5 ÷ 5; in both of skill 1's: (2 + 10·0.5) ÷ 12 ÷ 0.5; in none of skill 2's.
    found = words.odds(("rain",), ROWS, 0.0)
    assert found == pytest.approx([np.log(7 / 12 / 0.5), np.log(5 / 12 / 0.5), 0.0])
    # The mean over terms; `unseen` has b = 0.5 ÷ 5.
    unseen = np.log((10 * 0.1) / 12 / 0.1)
    assert words.odds(("rain", "unseen"), ROWS[:1], 0.0)[0] == pytest.approx((np.log(7 / 12 / 0.5) + unseen) / 2)
    assert (words.odds((), ROWS, 0.0) == 0).all()


def test_old_queries_fade_and_order_does_not_matter() -> None:
    facts = [(("rain",), 1, 0.0), (("sun",), 1, HALF_LIFE_DAYS * DAY_S), (("rain",), 2, 200 * HALF_LIFE_DAYS * DAY_S)]
    now = 200 * HALF_LIFE_DAYS * DAY_S
    found = []
    for order in (facts, facts[::-1]):
        words = WordHistory()
        for terms, row, time in order:
            words.asked(terms, time)
            words.add(row, terms, time)
        found.append(words.odds(("rain",), ROWS, now))
    assert found[0] == pytest.approx(found[1], abs=1e-9)
    assert found[0][0] == pytest.approx(0, abs=1e-9)
    assert found[0][1] > 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ranker.words.SKILL_TERMS", 10)
    words = WordHistory()
    for index in range(100):
        words.add(1, (f"t{index}", "often"), 0.0)
    assert len(words.terms_of(1)) <= 10
    assert "often" in words.terms_of(1)


def test_terms_are_distinct_and_in_one_order() -> None:
    assert query_terms("To book, or to book a flight?") == ("book", "flight")


def test_the_share_of_terms_that_describe_follows_a_new_description() -> None:
    described = DescribedBy()
    described.move(1, (), ("rain", "sun"))
    described.move(3, (), ("rain",))
    rows = np.array([1, 3, 2, 4, 900, 0])
    assert described.share(("rain", "sun"), rows).tolist() == [1.0, 0.5, 0, 0, 0, 0]
    described.move(1, ("rain", "sun"), ("rain", "snow"))
    assert described.share(("sun",), rows).tolist() == [0] * 6
    assert described.share(("snow", "rain"), rows).tolist() == [1.0, 0.5, 0, 0, 0, 0]
    assert described.share(("never", "met"), rows).tolist() == [0] * 6
