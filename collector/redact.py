"""Redaction before anything is kept: argument values, secrets and personal data, and what replaces them."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from pickwise.events import MAX_ERROR_MESSAGE_BYTES, MAX_QUERY_BYTES, cut_utf8
from pickwise.settings import Settings

#: Arguments longer than this, as JSON, keep their names only.
MAX_ARGUMENTS_BYTES = 8 * 1024
#: Masking looks at so much of a text; what lies beyond is cut off anyway.
_LOOK_AT = 64 * 1024
_DIGEST_BYTES = 16


class Mask(NamedTuple):
    """A kind of secret: ``hint`` is a cheap substring that must occur (None: any digit) before the pattern is tried."""

    name: str
    hint: str | None
    pattern: re.Pattern[str]
    check: Callable[[str], bool] | None = None


def _luhn(digits: str) -> bool:
    """Whether the check digit fits (ISO/IEC 7812-1, annex B)."""
    numbers = [int(digit) for digit in digits if digit.isdigit()]
    doubled = (sum(divmod(2 * number, 10)) if i % 2 else number for i, number in enumerate(reversed(numbers)))
    return 13 <= len(numbers) <= 19 and sum(doubled) % 10 == 0


def _octets(address: str) -> bool:
    return all(int(part) < 256 for part in address.split("."))


def _pattern(text: str) -> re.Pattern[str]:
    # ASCII: a Chinese character next to a number or an address is no part of it.
    return re.compile(text, re.ASCII | re.DOTALL)


#: In this order: the longer forms first, so that no part of one is taken for another.
MASKS: tuple[Mask, ...] = (
    Mask(
        "private_key",
        "-----BEGIN",
        _pattern(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    ),
    Mask("jwt", "eyJ", _pattern(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),
    Mask("bearer_token", "earer ", _pattern(r"(?<=[Bb]earer )[\w.~+/=-]{8,}")),
    Mask("aws_key", "A", _pattern(r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}\b")),
    Mask(
        "api_key",
        None,
        _pattern(
            r"\b(?:sk|pk|rk)[-_](?=[\w-]*\d)[\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|"
            r"\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{30,}|\bhf_\w{20,}|\bnpm_\w{30,}|\bpypi-[\w-]{20,}|"
            r"\bpw_[0-9a-f]{6,}_[\w-]{8,}"  # our own
        ),
    ),
    Mask(
        "secret",
        None,
        _pattern(
            r"(?i:(?:\b(?:api[_-]?key|secret[_-]?key|client[_-]?secret|access[_-]?token|auth[_-]?token|password|passwd|"
            r"secret|token)|密码|口令))(?:\"|')?\s*(?:[:=：是]|is\s)\s*(?:\"|')?([^\s\"',;&，。]{4,})"
        ),
    ),
    Mask("url_password", "://", _pattern(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")),
    Mask("email", "@", _pattern(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?![\w-])")),
    Mask("card", None, _pattern(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.])"), _luhn),
    Mask("id_number", None, _pattern(r"(?<!\d)[1-9]\d{5}(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d\d{3}[\dXx](?!\w)")),
    Mask("id_number", None, _pattern(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])")),
    Mask(
        "phone",
        None,
        _pattern(
            r"(?<![\w.])(?:\+\d{1,3}[ .-]?(?:\(?\d{1,4}\)?[ .-]?){2,5}\d{2,4}|"
            r"\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}|1[3-9]\d[ -]?\d{4}[ -]?\d{4})(?![\w])"
        ),
    ),
    Mask("ip_address", None, _pattern(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"), _octets),
)
_HAS_DIGIT = re.compile(r"\d")
#: Masks without a hint need a digit, but for the named secrets, which may be words.
_ANY_TEXT = frozenset({"secret", "api_key"})


#: What libraries put around an argument value that they quote in an error.
_ECHO = re.compile(
    r"(input_value=|with kwargs |Type validation failed: Value: |JSON parsing failed: Text: )"
    r"(?:.*?(?=, input_type=|\]\n| with error|\.\s*\nError message)|.*)",
    re.DOTALL,
)
_ECHOED = "[argument]"
#: Shorter values are words like any other, and no secret.
_ECHO_BYTES = 4


class Redactor:
    """Redacts by one installation's settings and key. ``counts`` says how often each kind was removed."""

    def __init__(self, settings: Settings, key: bytes) -> None:
        self._key = key
        self._hash_queries = settings.store_queries == "hash"
        self._allowed = frozenset(settings.allow_arguments)
        self.counts: Counter[str] = Counter()

    def query(self, text: str) -> tuple[str, bool]:
        """What is kept of a query, and whether it was cut: the masked text, or only its keyed hash."""
        if self._hash_queries:
            self.counts["query"] += 1
            return f"hash:{self.digest(text.encode('utf-8', 'surrogatepass'))}", False
        # Masked before it is cut: half a secret at the edge would not look like one.
        return cut_utf8(self.text(text), MAX_QUERY_BYTES)

    def error_message(self, text: str, skill_id: str, arguments: Any = None) -> str:
        """The masked text without the argument values that errors like to echo, cut to its limit."""
        text = _ECHO.sub(lambda found: f"{found[1]}{_ECHOED}", text[:_LOOK_AT])
        for value in self._secret_values(skill_id, arguments):
            text = text.replace(value, _ECHOED)
        return cut_utf8(self.text(text), MAX_ERROR_MESSAGE_BYTES)[0]

    def text(self, text: str) -> str:
        """The text with secrets and personal data replaced by ``[name]``."""
        text = text[:_LOOK_AT]
        has_digit = _HAS_DIGIT.search(text) is not None
        for mask in MASKS:
            if mask.hint is not None and mask.hint not in text:
                continue
            if mask.hint is None and not has_digit and mask.name not in _ANY_TEXT:
                continue
            text = mask.pattern.sub(lambda found, mask=mask: self._masked(mask, found), text)  # type: ignore[misc]
        return text

    def arguments(self, skill_id: str, value: Any) -> str | None:
        """The arguments as JSON, each value replaced by its type and length unless its name is allow-listed."""
        if value is None:
            return None
        kept: Any
        if isinstance(value, dict):
            kept = {name: self._argument(skill_id, name, item) for name, item in value.items()}
        else:
            kept = self._redacted(value)
        encoded = msgspec.json.encode(kept)
        if len(encoded) > MAX_ARGUMENTS_BYTES:
            encoded = msgspec.json.encode({"too_long": len(encoded)})
        return encoded.decode()

    def digest(self, data: bytes) -> str:
        """A keyed hash: equal for equal data, and no help to who guesses without the key."""
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()[: 2 * _DIGEST_BYTES]

    def _argument(self, skill_id: str, name: str, value: Any) -> Any:
        return value if self._is_allowed(skill_id, name) else self._redacted(value)

    def _is_allowed(self, skill_id: str, name: str) -> bool:
        return name in self._allowed or f"{skill_id}:{name}" in self._allowed

    def _secret_values(self, skill_id: str, arguments: Any) -> list[str]:
        """The argument values that an error text must not repeat, longest first."""
        if isinstance(arguments, dict):
            arguments = [value for name, value in arguments.items() if not self._is_allowed(skill_id, name)]
        values = {value for value in _leaves(arguments) if len(value.encode("utf-8", "replace")) >= _ECHO_BYTES}
        return sorted(values, key=lambda value: (-len(value), value))

    def _redacted(self, value: Any) -> str:
        self.counts["argument"] += 1
        return described(value)

    def _masked(self, mask: Mask, found: re.Match[str]) -> str:
        if mask.check is not None and not mask.check(found[0]):
            return found[0]
        self.counts[mask.name] += 1
        if mask.pattern.groups:  # only the group is the secret, the words around it say what it was
            return found[0][: found.start(1) - found.start()] + f"[{mask.name}]"
        return f"[{mask.name}]"


def _leaves(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value


def described(value: Any) -> str:
    """JSON type and, where it has one, length: ``string(12)``, ``array(3)``, ``number``."""
    if isinstance(value, str):
        return f"string({len(value)})"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, list | tuple):
        return f"array({len(value)})"
    return f"object({len(value)})" if isinstance(value, dict) else "null"
