"""How a call that failed is known, and which kind of failure it is."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, cast, get_args

from collector.mapping import attributes as names
from collector.mapping.conversation import as_text, from_json
from collector.spans import Span, SpanEvent
from pickwise.events import ErrorKind
from pickwise.settings import Settings

_STATUS = re.compile(r"\b(?:HTTP(?:/\d(?:\.\d)?)?(?: error)?|status(?:[ _]code)?)\W{0,3}([45]\d\d)\b", re.IGNORECASE)

#: (what the error's type is, what its text says, kind): the first rule that matches names the kind.
_RULES: tuple[tuple[str | None, str | None, ErrorKind], ...] = (
    (r"^-32601$", None, "not_found"),
    (r"^-32602$", None, "invalid_arguments"),
    (r"(?:Tool_?NotFound|Tool_?Not_?Registered|Unknown_?Tool|NoSuchTool|Unknown_?Function)", None, "not_found"),
    (
        None,
        r"unknown (?:tool|action|function)\b|(?:tool|function) (?:\S+ )?not found|no (?:such )?(?:tool|function)\b|"
        r"is not a valid tool|unavailable tool|unsupported (?:custom tool )?call: |"
        r"tool .{0,80}(?:does not exist|is not part of the provided tools)",
        "not_found",
    ),
    (
        r"(?:Validation|JSONDecode|Invalid_?(?:Tool)?_?(?:Argument|Input|Param)|ToolInputParsing)",
        None,
        "invalid_arguments",
    ),
    (r"TypeError$", r"argument|parameter", "invalid_arguments"),
    (
        None,
        r"validation errors? for|(?:input|tool) validation failed|\barg \S+ is (?:invalid|not in the)|"
        r"invalid (?:input|arguments?|parameters?) for|invalid json|json parsing failed|"
        r"type validation failed|field required|mandatory input parameters|missing \d+ required|"
        r"unexpected keyword argument|missing required (?:argument|parameter|field)|"
        r"failed to parse (?:tool )?(?:arguments|parameter)|argument parsing failed|arguments are malformed|"
        r"error while decoding function arguments",
        "invalid_arguments",
    ),
    (r"(?:Cancel|Abort)", None, "cancelled"),
    (r"(?:Time_?out|Deadline_?Exceeded|Timed_?Out)", None, "timeout"),
    (r"(?:Rate_?Limit|Too_?Many_?Requests|Resource_?Exhausted|Throttl)", None, "rate_limited"),
    (
        r"(?:PermissionError|Permission_?Denied|Forbidden|Unauthorized|Access_?Denied|Unauthenticated)",
        None,
        "permission_denied",
    ),
    (None, r"timed out|deadline exceeded|time-?out\b", "timeout"),
    (None, r"rate limit|too many requests", "rate_limited"),
    (None, r"permission denied|access denied|not authori[sz]ed|\bforbidden\b|\bunauthori[sz]ed\b", "permission_denied"),
    (None, r"\b(?:was|been) cancell?ed\b", "cancelled"),
)
_COMPILED = tuple(
    (re.compile(kind, re.IGNORECASE) if kind else None, re.compile(text, re.IGNORECASE) if text else None, result)
    for kind, text, result in _RULES
)
#: ``error.type`` may be one of our own words (`timeout` is the conventions' too); the vague ones leave it to the text.
_KINDS: frozenset[str] = frozenset(get_args(ErrorKind)) - {"tool_error", "exception", "other"}
#: Rules look at so much of an error's text: its beginning says what it is, and tools echo long inputs.
_LOOK_AT = 2_000
#: Tools fail in few ways: so many errors are remembered, none of them longer.
_REMEMBERED = 1_024
_REMEMBERED_CHARS = 512


#: How a framework begins to say that it could not run a call, and what it may say then.
_REFUSED = re.compile(r"\s*(?:an )?error\b|the tool call\b", re.IGNORECASE)
_REFUSALS: tuple[ErrorKind, ...] = ("not_found", "invalid_arguments")


def classify(error_type: str, text: str) -> ErrorKind | None:
    """The kind that the error's type and text tell, or None where they are vague."""
    if len(error_type) + len(text) <= _REMEMBERED_CHARS:
        return _classified_often(error_type, text)
    return _classified(error_type, text)


def _classified(error_type: str, text: str) -> ErrorKind | None:
    if error_type in _KINDS:
        return cast(ErrorKind, error_type)
    if error_type.isdecimal() and (status := http_kind(int(error_type))):
        return status
    text = text[:_LOOK_AT]
    for type_rule, text_rule, kind in _COMPILED:
        if (type_rule is None or type_rule.search(error_type)) and (text_rule is None or text_rule.search(text)):
            return kind
    found = _STATUS.search(text)
    return http_kind(int(found.group(1))) if found else None


_classified_often = lru_cache(_REMEMBERED)(_classified)


def http_kind(status: int) -> ErrorKind | None:
    """The kind of an HTTP status code; None for one that is no error."""
    if status in (401, 403):
        return "permission_denied"
    if status == 429:
        return "rate_limited"
    if status in (408, 504):
        return "timeout"
    if 400 <= status < 500:
        return "http_4xx"
    return "http_5xx" if 500 <= status < 600 else None


class Failure:
    """What is known of a failure: its kind (None: vague) and its text."""

    __slots__ = ("kind", "message")

    def __init__(self, kind: ErrorKind | None, message: str | None) -> None:
        self.kind = kind
        self.message = message or None


def of_text(text: str, skill_id: str | None, settings: Settings) -> Failure | None:
    """The failure that a configured error pattern sees in a result, or None."""
    for rule in settings.error_patterns:
        if rule.skill_id not in (None, skill_id):
            continue
        if re.search(rule.pattern, text):
            return Failure(cast(ErrorKind, rule.error_kind), text)
    return None


def of_span(span: Span, result: Any, skill_id: str, settings: Settings) -> Failure | None:
    """The failure of an executed call: status, ``error.type``, an exception, ``isError``, or an error pattern."""
    exception = _exception(span.events) if span.events else None
    error_type = span.attributes.get(names.ERROR_TYPE)
    if span.failed or error_type or exception or is_error_result(result):
        return _reported(span, error_type, exception, as_text(result))
    return of_text(text, skill_id, settings) if settings.error_patterns and (text := as_text(result)) else None


def _reported(span: Span, error_type: Any, exception: SpanEvent | None, result_text: str) -> Failure:
    told = exception.attributes if exception else {}
    kinds = " ".join(str(kind) for kind in (error_type, told.get(names.EXCEPTION_TYPE)) if kind)
    messages = (told.get(names.EXCEPTION_MESSAGE), span.status_message, result_text)
    message = next((str(text) for text in messages if text), None)
    kind = _status_kind(span) or classify(kinds, " ".join(str(text) for text in messages if text))
    return Failure(kind or ("exception" if exception else "tool_error"), message or kinds)


def _exception(events: list[SpanEvent]) -> SpanEvent | None:
    return next((event for event in events if event.name == names.EXCEPTION_EVENT), None)


def _status_kind(span: Span) -> ErrorKind | None:
    status = span.attributes.get(names.HTTP_STATUS)
    return http_kind(status) if isinstance(status, int) else None


def is_error_result(result: Any) -> bool:
    """Whether a result says itself that it is an error: MCP's ``isError``, ``error`` as a flag, or that key alone."""
    # Most results are no object, or one without the keys, which an escape in it could hide.
    if isinstance(result, str) and not ("isError" in result or '"error"' in result or "\\" in result):
        return False
    decoded = from_json(result)
    if not isinstance(decoded, dict):
        return False
    is_flagged = decoded.get("isError") is True or decoded.get("error") is True
    return is_flagged or (list(decoded) == ["error"] and bool(decoded["error"]))


def of_quoted(text: str, error: bool | None, skill_id: str, settings: Settings) -> Failure | None:
    """The failure that a quoted result tells: by its flag, by itself, by how a framework refuses, or by a pattern.

    A framework that cannot run a call says so in place of a result, without a flag.
    """
    if error or (error is None and is_error_result(text)):
        return Failure(classify("", text), text)
    if error is None and _REFUSED.match(text) and (kind := classify("", text)) in _REFUSALS:
        return Failure(kind, text)
    return of_text(text, skill_id, settings) if settings.error_patterns else None
