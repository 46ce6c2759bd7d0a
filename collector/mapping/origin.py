"""Who and where a span comes from, read from the span first and its resource second."""

from __future__ import annotations

from typing import Any

from collector.mapping import attributes as names
from collector.mapping.conversation import from_json
from collector.mapping.facts_of import Origin
from collector.spans import Attributes, Span

_SESSION = (names.CONVERSATION_ID, names.SESSION_ID, *names.AI_SESSIONS, *names.TL_SESSIONS, *names.LS_SESSIONS)
_AGENT = (names.AGENT_NAME, names.OI_AGENT, names.AI_FUNCTION, names.TL_AGENT, names.LS_AGENT)
_MODEL = (names.REQUEST_MODEL, names.AI_MODEL, names.OI_MODEL, names.RESPONSE_MODEL, names.TL_MODEL, names.LS_MODEL)
_ENVIRONMENT = (names.ENVIRONMENT, names.ENVIRONMENT_OLD)
#: Keys of OpenInference's free metadata, where a framework puts what has no attribute.
_METADATA_AGENT = "lc_agent_name"
#: What instrumentations write where they have no value.
_NO_VALUE = ("", "unknown")


def origin_of(span: Span) -> Origin:
    """Session, agent, model, environment and release; None where nothing says so."""
    own = span.attributes
    return Origin(
        session_id=_first(own, _SESSION) or _first(span.resource, (names.SESSION_ID,)),
        agent=_first(own, _AGENT) or _from_metadata(own, _METADATA_AGENT) or _first(span.resource, _AGENT),
        model=_first(own, _MODEL),
        environment=_first(span.resource, _ENVIRONMENT) or _first(own, _ENVIRONMENT),
        release=_first(span.resource, (names.SERVICE_VERSION,)),
    )


def _first(attributes: Attributes, keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value: Any = attributes.get(key)
        if value is not None and value not in _NO_VALUE:
            return value if isinstance(value, str) else str(value)
    return None


def _from_metadata(attributes: Attributes, key: str) -> str | None:
    if names.OI_METADATA not in attributes:
        return None
    metadata = from_json(attributes[names.OI_METADATA])
    return _first(metadata, (key,)) if isinstance(metadata, dict) else None
