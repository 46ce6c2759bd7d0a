"""Alert rules: what a rule may say, and a reader that tells every mistake with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from analytics.metrics.declarations import BY_NAME
from analytics.silences import Hours, parse_hours

Comparison = Literal[">", ">=", "<", "<="]
Severity = Literal["info", "warning", "critical"]

DEGRADED_FOR = "degraded_for_seconds"
SECONDS_SINCE_EVENT = "seconds_since_event"
#: What only alerts know, because it is about this moment: how long an instance has been degraded, and how long a
#: project has sent nothing. Name → groupings.
WATCHED: dict[str, frozenset[str]] = {DEGRADED_FOR: frozenset({"instance"}), SECONDS_SINCE_EVENT: frozenset()}
#: Name of the alerts that the nightly job raises when a skill's status changes; no rule may bear it.
SKILL_STATUS = "skill_status"

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|m|h|d)$")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class RuleError(ValueError):
    """A rules file that cannot be used; one line a mistake, each with file, line and what was expected."""


def parse_duration(value: Any) -> timedelta:
    """``30s``, ``5m``, ``2h`` or ``1d``. Raises ValueError."""
    if isinstance(value, timedelta):
        return value
    found = _DURATION.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"expected a duration such as 30s, 5m, 2h or 1d; got {value!r}")
    return timedelta(**{_UNITS[found[2]]: float(found[1])})


def _metric(value: str) -> str:
    known = {*BY_NAME, *WATCHED}
    if value not in known:
        raise ValueError(f"expected one of {', '.join(sorted(known))}; got {value!r}")
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", value):
        raise ValueError(f"expected lower-case letters, digits and underscores; got {value!r}")
    if value == SKILL_STATUS:
        raise ValueError(f"{SKILL_STATUS} is taken by the nightly job")
    return value


def _hours(value: Any) -> Hours:
    return value if isinstance(value, Hours) else parse_hours(str(value))


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]


class Rule(BaseModel):
    """One alert rule. A value that meets the comparison for long enough makes it fire, group by group."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: Annotated[str, AfterValidator(_name)]
    description: str = Field("", description="a sentence for the reader of the notification")
    metric: Annotated[str, AfterValidator(_metric)]
    by: list[str] = Field([], description="groupings of the metric; each group has its own state")
    match: dict[str, str] = Field({}, description="only the groups that bear these values, by grouping")
    field: Literal["value", "p50", "p95", "p99", "rbo"] = Field("value", description="which number of a metric's row")
    window: Annotated[Duration, Field(gt=timedelta(0), description="how far back the metric looks")]
    comparison: Comparison
    threshold: float
    for_: Annotated[Duration, Field(alias="for", ge=timedelta(0))] = timedelta(0)
    """How long the condition must hold before the alert fires; until then it is pending."""
    resolve: Annotated[Duration, Field(ge=timedelta(0))] = timedelta(0)
    """How long the condition must be gone before the alert resolves."""
    min_n: int = Field(1, ge=1, description="observations below which a value counts as no data")
    no_data: Literal["ok", "keep"] = Field("ok", description="without data the condition is gone, or as it was")
    severity: Severity
    silence: list[Annotated[Hours, BeforeValidator(_hours)]] = Field(
        [], description="hours of UTC in which nobody is told that it fires"
    )

    def breached(self, value: float) -> bool:
        return {
            ">": value > self.threshold,
            ">=": value >= self.threshold,
            "<": value < self.threshold,
            "<=": value <= self.threshold,
        }[self.comparison]

    def is_quiet(self, at: datetime) -> bool:
        return any(hours.cover(at) for hours in self.silence)

    @property
    def groupings(self) -> list[str]:
        """Groupings that the metric is asked for: the rule's, and those that ``match`` filters by."""
        return [*self.by, *(name for name in self.match if name not in self.by)]


def load_rules(path: Path | None = None) -> list[Rule]:
    """The rules of a file, or the shipped ones. Raises RuleError with a line for every mistake."""
    source = path if path is not None else files("analytics") / "rules.yaml"
    try:
        text = source.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: expected a readable UTF-8 file of alert rules: {error}") from error
    return parse_rules(text, str(path or "rules.yaml"))


def parse_rules(text: str, name: str = "rules.yaml") -> list[Rule]:
    """The rules of a YAML text. ``name`` stands in front of every mistake."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise RuleError(f"{name}:{line}: not YAML: {error.problem}") from error
    items = _rule_nodes(root, name)
    mistakes: list[str] = []
    rules: list[Rule] = []
    for index, node in enumerate(items):
        where = f"rules[{index}]"
        mistakes += [f"{name}:{line}: {where}.{key}: given twice" for key, line in _repeated_keys(node)]
        try:
            rules.append(Rule.model_validate(_plain(node)))
        except ValidationError as error:
            mistakes += [_mistake(name, where, node, detail) for detail in error.errors()]
        else:
            mistakes += [f"{name}:{_line(node, (key,))}: {where}.{key}: {why}" for key, why in _misfits(rules[-1])]
            if rules[-1].name in {rule.name for rule in rules[:-1]}:
                mistakes.append(f"{name}:{_line(node, ('name',))}: {where}.name: {rules[-1].name!r} is given twice")
    if mistakes:
        raise RuleError("\n".join(mistakes))
    return rules


def _rule_nodes(root: yaml.Node | None, name: str) -> list[yaml.Node]:
    """The nodes under ``rules``; nothing else may stand at the top."""
    if not isinstance(root, yaml.MappingNode):
        raise RuleError(f"{name}:1: expected a mapping with the key `rules`")
    for key, value in root.value:
        if key.value != "rules":
            raise RuleError(f"{name}:{key.start_mark.line + 1}: {key.value}: expected only the key `rules`")
        if not isinstance(value, yaml.SequenceNode):
            raise RuleError(f"{name}:{value.start_mark.line + 1}: rules: expected a list of rules")
        return list(value.value)
    raise RuleError(f"{name}:1: expected a mapping with the key `rules`")


def _misfits(rule: Rule) -> Iterator[tuple[str, str]]:
    """What single fields cannot tell: whether the metric can be asked for these groups."""
    allowed = WATCHED[rule.metric] if rule.metric in WATCHED else frozenset(BY_NAME[rule.metric].groupings)
    for key, names in (("by", rule.by), ("match", list(rule.match))):
        for grouping in names:
            if grouping not in allowed:
                expected = f"one of {', '.join(sorted(allowed))}" if allowed else "no grouping"
                yield key, f"expected {expected} for {rule.metric}; got {grouping!r}"


def _plain(node: yaml.Node) -> Any:
    return yaml.SafeLoader("").construct_object(node, deep=True)


def _repeated_keys(node: yaml.Node) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value in seen:
            yield key.value, key.start_mark.line + 1
        seen.add(key.value)


def _mistake(name: str, where: str, node: yaml.Node, detail: Any) -> str:
    path = tuple(detail["loc"])
    reason = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        reason = f"expected one of {', '.join(_field_names())}"
    elif not reason.startswith("expected") and detail["type"] not in {"missing", "value_error"}:
        reason = f"{reason[0].lower()}{reason[1:]}; got {detail['input']!r:.60}"
    field = "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in path)
    return f"{name}:{_line(node, path)}: {where}{field}: {reason[0].lower()}{reason[1:]}"


def _field_names() -> list[str]:
    return [field.alias or name for name, field in Rule.model_fields.items()]


def _line(node: yaml.Node, path: tuple[Any, ...]) -> int:
    """1-based line of the deepest node that the path reaches."""
    line = node.start_mark.line + 1
    for part in path:
        found = _child(node, part)
        if found is None:
            return line
        line, node = found
    return line


def _child(node: yaml.Node, part: Any) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        matching = [(key.start_mark.line + 1, value) for key, value in node.value if key.value == str(part)]
        return matching[-1] if matching else None
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part].start_mark.line + 1, node.value[part]
    return None
