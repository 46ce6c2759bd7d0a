"""Who and where a span comes from, read from the span first and its resource second."""

from __future__ import annotations

from typing import Any

from collector.mapping import attributes as names
from collector.mapping.conversation import from_json
from collector.mapping.facts_of import Origin
from collector.remembered import Remembered
from collector.spans import Attributes, Span

_SESSION = (
    *(names.CONVERSATION_ID, names.SESSION_ID, names.LF_TRACE_SESSION),
    *(*names.AI_SESSIONS, *names.TL_SESSIONS, *names.LS_SESSIONS, *names.MASTRA_SESSIONS),
)
_AGENT = (names.AGENT_NAME, names.OI_AGENT, names.AI_FUNCTION, names.TL_AGENT, names.LS_AGENT)
_MODEL = (names.REQUEST_MODEL, names.AI_MODEL, names.OI_MODEL, names.RESPONSE_MODEL, names.TL_MODEL, names.LS_MODEL)
_ENVIRONMENT = (names.ENVIRONMENT, names.ENVIRONMENT_OLD)
#: Keys of OpenInference's free metadata, where a framework puts what has no attribute.
_METADATA_AGENT = "lc_agent_name"
#: What instrumentations write where they have no value.
_NO_VALUE = ("", "unknown")
#: Beginning of the id of an OpenAI response. Where a request goes on from one, some frameworks call it a conversation,
#: but each turn has another.
_RESPONSE = "resp_"


#: Kinds of spans whose names are remembered; senders may invent ever new ones.
_KINDS = 1_024


_Names = tuple[str, ...]
#: Names of session, agent, model and environment.
_Named = tuple[_Names, _Names, _Names, _Names]
_named: Remembered[tuple[str, ...], _Named] = Remembered(_KINDS)
#: The resource of the last span, and what it tells: spans of a request share it.
_last_resource: tuple[Attributes, Origin] = ({}, Origin())


def origin_of(span: Span) -> Origin:
    """Session, agent, model, environment and release; None where nothing says so."""
    own = span.attributes
    session, agent, model, environment = _named.get(tuple(own)) or _named_of(own)
    resource, shared = _last_resource
    if resource is not span.resource:
        shared = _shared_origin(span.resource)
    return Origin(
        session_id=(_session(own, session) if session else None) or shared.session_id,
        agent=(_first(own, agent) if agent else None) or _from_metadata(own, _METADATA_AGENT) or shared.agent,
        model=_first(own, model) if model else None,
        environment=shared.environment or (_first(own, environment) if environment else None),
        release=shared.release,
    )


def _named_of(attributes: Attributes) -> _Named:
    """For each part of an origin the names, of those that may tell it, that the attributes have, in their order."""
    session, agent, model, environment = [
        tuple([name for name in group if name in attributes]) for group in (_SESSION, _AGENT, _MODEL, _ENVIRONMENT)
    ]
    named = session, agent, model, environment
    _named.keep(tuple(attributes), named)
    return named


def _shared_origin(resource: Attributes) -> Origin:
    global _last_resource
    origin = Origin(
        session_id=_first(resource, (names.SESSION_ID,)),
        agent=_first(resource, _AGENT),
        environment=_first(resource, _ENVIRONMENT),
        release=_first(resource, (names.SERVICE_VERSION,)),
    )
    _last_resource = resource, origin
    return origin


def _first(attributes: Attributes, keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value: Any = attributes.get(key)
        if value is not None and value not in _NO_VALUE:
            return value if isinstance(value, str) else str(value)
    return None


def _session(attributes: Attributes, keys: tuple[str, ...]) -> str | None:
    return _first(attributes, tuple([key for key in keys if not str(attributes[key]).startswith(_RESPONSE)]))


def _from_metadata(attributes: Attributes, key: str) -> str | None:
    if names.OI_METADATA not in attributes:
        return None
    metadata = from_json(attributes[names.OI_METADATA])
    return _first(metadata, (key,)) if isinstance(metadata, dict) else None
