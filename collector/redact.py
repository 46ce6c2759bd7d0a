"""Redaction before anything is kept: argument values, secrets and personal data, and what replaces them."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from pickwise.events import MAX_ERROR_MESSAGE_BYTES, MAX_QUERY_BYTES, cut_utf8
from pickwise.settings import Settings

#: Arguments longer than this, as JSON, keep their names only.
MAX_ARGUMENTS_BYTES = 8 * 1024
#: Masking looks at so much of a text; what lies beyond is cut off anyway.
_LOOK_AT = 64 * 1024
_DIGEST_BYTES = 16
_BLOCK_BYTES = 64
#: What ``described`` makes.
_DESCRIBED = re.compile(r"(?:string|array|object)\(\d+\)|number|boolean|null")
#: The queries of a session come in each of its turns: so many texts, none of them longer, are remembered as masked.
_REMEMBERED = 1_024
_REMEMBERED_CHARS = 1_024


class Mask(NamedTuple):
    """A kind of secret. One of the ``hints`` must occur in a text (none: any digit) before the pattern is tried."""

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Callable[[str], bool] | None = None


def _luhn(digits: str) -> bool:
    """Whether the check digit fits (ISO/IEC 7812-1, annex B)."""
    numbers = [int(digit) for digit in digits if digit.isdigit()]
    doubled = (sum(divmod(2 * number, 10)) if i % 2 else number for i, number in enumerate(reversed(numbers)))
    return 13 <= len(numbers) <= 19 and sum(doubled) % 10 == 0


def _octets(address: str) -> bool:
    return all(int(part) < 256 for part in address.split("."))


def _few_groups(number: str) -> bool:
    """Whether it is written as telephone numbers are, and no list of numbers."""
    return len(_GROUP.findall(number)) <= _MAX_GROUPS


def _pattern(text: str) -> re.Pattern[str]:
    # ASCII: a Chinese character next to a number or an address is no part of it.
    return re.compile(text, re.ASCII | re.DOTALL)


_GROUP = re.compile(r"\d+")
_MAX_GROUPS = 7

#: A sender chooses the text, so no pattern may look at a place more than some hundred times.
#: In this order: the longer forms first, so that no part of one is taken for another.
MASKS: tuple[Mask, ...] = (
    Mask(
        "private_key",
        ("-----BEGIN",),
        _pattern(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    ),
    Mask("jwt", ("eyJ",), _pattern(r"\beyJ[\w-]{8,4096}+\.[\w-]{8,}\.[\w-]*")),
    Mask("bearer_token", ("earer ",), _pattern(r"(?<=[Bb]earer )[\w.~+/=-]{8,}")),
    Mask("aws_key", ("A",), _pattern(r"\b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{16}\b")),
    Mask(
        "api_key",
        ("-", "_", "AIza"),
        _pattern(
            r"\b(?:sk|pk|rk)[-_](?=[\w-]{0,256}?\d)[\w-]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|"
            r"\bxox[abprs]-[\w-]{10,}|\bAIza[\w-]{30,}|\bhf_\w{20,}|\bnpm_\w{30,}|\bpypi-[\w-]{20,}|"
            r"\bpw_[0-9a-f]{6,}_[\w-]{8,}"  # our own
        ),
    ),
    Mask(
        "secret",
        (":", "=", "：", "是", "is"),
        _pattern(
            r"(?i:(?:\b(?:api[_-]?key|secret[_-]?key|client[_-]?secret|access[_-]?token|auth[_-]?token|password|passwd|"
            r"secret|token)|密码|口令))(?:\"|')?\s*(?:[:=：是]|is\s)\s*(?:\"|')?([^\s\"',;&，。]{4,})"
        ),
    ),
    Mask("url_password", ("://",), _pattern(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")),
    Mask("email", ("@",), _pattern(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?![\w-])")),
    Mask("card", (), _pattern(r"(?<![\d.])\d(?:[ -]?\d){12,18}(?![\d.])"), _luhn),
    Mask("id_number", (), _pattern(r"(?<!\d)[1-9]\d{5}(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d\d{3}[\dXx](?!\w)")),
    Mask("id_number", (), _pattern(r"(?<![\d-])\d{3}-\d{2}-\d{4}(?![\d-])")),
    Mask(
        "phone",
        (),
        _pattern(
            r"(?<![\w.])(?:\+\d(?:\)?[ .-]?\(?\d){3,25}(?<=\d\d)|"
            r"\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}|1[3-9]\d[ -]?\d{4}[ -]?\d{4})(?![\w])"
        ),
        _few_groups,
    ),
    Mask("ip_address", (), _pattern(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])"), _octets),
)
_HAS_DIGIT = re.compile(r"\d")
#: What is said of texts of so many characters.
_SHORT_CHARS = 256
_SHORT = tuple(f"string({length})" for length in range(_SHORT_CHARS))
_sha256 = hashlib.sha256
_encode = msgspec.json.Encoder().encode


#: What libraries put around an argument value that they quote in an error.
_ECHO = re.compile(
    r"(input_value=|with kwargs |Type validation failed: Value: |JSON parsing failed: Text: )"
    r"(?:.*?(?=, input_type=|\]\n| with error|\.\s*\nError message)|.*)",
    re.DOTALL,
)
_ECHOED = "[argument]"
#: Shorter values are words like any other, and no secret.
_ECHO_BYTES = 4
#: Where a call has more argument values, its error is not searched for each, and so not kept.
_MAX_ECHOES = 1_000


class Redactor:
    """Redacts by one installation's settings and key. ``counts`` says how often each kind was removed."""

    def __init__(self, settings: Settings, key: bytes) -> None:
        block = (_sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
        self._inner = _sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = _sha256(bytes(byte ^ 0x5C for byte in block))
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
        values = self._secret_values(skill_id, arguments)
        if len(values) > _MAX_ECHOES:
            return described(text)
        for value in values:
            text = text.replace(value, _ECHOED)
        return cut_utf8(self.text(text), MAX_ERROR_MESSAGE_BYTES)[0]

    def text(self, text: str) -> str:
        """The text with secrets and personal data replaced by ``[name]``."""
        masked, kinds = _masked_often(text) if len(text) <= _REMEMBERED_CHARS else _masked(text[:_LOOK_AT])
        if kinds:
            self.counts.update(kinds)
        return masked

    def arguments(self, skill_id: str, value: Any) -> str | None:
        """The arguments as JSON, each value replaced by its type and length unless its name is allow-listed."""
        if value is None:
            return None
        kept: Any
        if isinstance(value, dict):
            # Looked up where it is a short text, as most values are.
            kept = {
                name: _SHORT[len(item)] if type(item) is str and len(item) < _SHORT_CHARS else described(item)
                for name, item in value.items()
            }
            taken_out = len(value)
            if self._allowed:
                allowed = self._allowed_names(skill_id, value)
                kept.update((name, value[name]) for name in allowed)
                taken_out -= len(allowed)
        else:
            kept, taken_out = described(value), 1
        if taken_out:
            self.counts["argument"] += taken_out
        encoded = _encode(kept)
        if len(encoded) > MAX_ARGUMENTS_BYTES:
            encoded = _encode({"too_long": len(encoded)})
        return encoded.decode()

    def digest(self, data: bytes) -> str:
        """A keyed hash: equal for equal data, and no help to who guesses without the key."""
        # HMAC-SHA-256 spelled out (RFC 2104): ``hmac`` takes twice the time for data as short as arguments are.
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(data)
        outer.update(inner.digest())
        return outer.hexdigest()[: 2 * _DIGEST_BYTES]

    def _allowed_names(self, skill_id: str, arguments: Iterable[str]) -> set[str]:
        return {name for name in arguments if self._is_allowed(skill_id, name)}

    def _is_allowed(self, skill_id: str, name: str) -> bool:
        return name in self._allowed or f"{skill_id}:{name}" in self._allowed

    def _secret_values(self, skill_id: str, arguments: Any) -> list[str]:
        """The argument values that an error text must not repeat, longest first."""
        if isinstance(arguments, dict):
            arguments = [value for name, value in arguments.items() if not self._is_allowed(skill_id, name)]
        values = {value for value in _leaves(arguments) if len(value.encode("utf-8", "replace")) >= _ECHO_BYTES}
        return sorted(values, key=lambda value: (-len(value), value))


def _masked(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with secrets and personal data replaced by ``[name]``, and the name of each."""
    kinds: list[str] = []
    has_digit = _HAS_DIGIT.search(text) is not None
    for mask in MASKS:
        if any(map(text.__contains__, mask.hints)) if mask.hints else has_digit:
            text = mask.pattern.sub(lambda found, mask=mask: _replaced(mask, found, kinds), text)  # type: ignore[misc]
    return text, tuple(kinds)


_masked_often = lru_cache(_REMEMBERED)(_masked)


def _replaced(mask: Mask, found: re.Match[str], kinds: list[str]) -> str:
    if mask.check is not None and not mask.check(found[0]):
        return found[0]
    kinds.append(mask.name)
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
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, (list, tuple)):
        return f"array({len(value)})"
    return f"object({len(value)})" if isinstance(value, dict) else "null"


def is_described(value: Any) -> bool:
    """Whether it is what ``described`` makes: what stands for a value that was taken out."""
    return isinstance(value, str) and _DESCRIBED.fullmatch(value) is not None
