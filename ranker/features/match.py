"""Whether the query's language and intent agree with what the skill declares."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ranker.decay import Numbers
from ranker.features.base import Context, Feature


def _language(context: Context) -> Numbers:
    return np.asarray(context.fact("script") == context.query_script, dtype=np.float64)


def _agreement(wanted: str | None, declared: Iterable[frozenset[str]]) -> Numbers | float:
    """1 where the wanted word is declared, 0 where another is, NaN where either side says nothing."""
    if not wanted:
        return np.nan
    word = wanted.casefold()
    return np.array([float(word in words) if words else np.nan for words in declared])


def _domain(context: Context) -> Numbers | float:
    domains = (frozenset({skill.domain.casefold()}) if skill.domain else frozenset[str]() for skill in context.skills)
    return _agreement(context.turn.intent_domain, domains)


def _action(context: Context) -> Numbers | float:
    return _agreement(context.turn.intent_action, (skill.actions for skill in context.skills))


def _object(context: Context) -> Numbers | float:
    return _agreement(context.turn.intent_object, (skill.objects for skill in context.skills))


FEATURES = (
    Feature(
        "language_match",
        "flag",
        "request, registry",
        "a skill described in the query's script is easier to tell",
        _language,
        rising=True,
    ),
    Feature("domain_match", "flag", "request, registry", "the query's domain is the skill's", _domain, rising=True),
    Feature(
        "action_match",
        "flag",
        "request, registry",
        "the query's action is among the skill's capabilities",
        _action,
        rising=True,
    ),
    Feature(
        "object_match",
        "flag",
        "request, registry",
        "the query's object is among the skill's capabilities",
        _object,
        rising=True,
    ),
)
