"""Tools that search tools, and tools that call others: what the settings say of them.

A *router tool* is called with a query, and its result lists skills to choose from. A *proxy tool* is called with the
name of a skill and its arguments. Neither is a skill itself.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from pickwise.json_path import json_path, template

#: Formats of result texts that are known by name.
Parser = Literal[
    "mcp_copilot", "markdown_headings", "available_tools", "loaded_tools", "scored_tools", "server_actions"
]
#: What stands between a server's name and a tool's.
_SEPARATORS = re.compile(r"/|__|[.:]")
_KEPT_NAMES = 10_000


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"expected a regular expression: {error}") from error
    return value


def _path(value: str) -> str:
    json_path(value)
    return value


def _template(value: str) -> str:
    template(value)
    return value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Path = Annotated[str, AfterValidator(_path)]
Paths = Annotated[list[Path], BeforeValidator(_as_list)]
TemplateText = Annotated[str, AfterValidator(_template)]
Pattern = Annotated[str, AfterValidator(_pattern)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, description="name of the tool, or a glob; with or without its server in front")


class RouterTool(_Entry):
    """A tool whose result lists skills to choose from."""

    query: Path = Field("query", description="argument that holds the query, as a JSON path into the arguments")
    candidates: Paths = Field([], description="JSON path to the candidates in the result, or a list of such paths")
    parser: Parser | None = Field(None, description=f"known text format of the result: {', '.join(get_args(Parser))}")
    pattern: Pattern | None = Field(
        None,
        description="regular expression; each match in the result text is a candidate, its named groups the fields",
    )
    skill_id: TemplateText = Field("{name}", description="the skill that a candidate is, from its fields")
    score: Path | None = Field(None, description="the candidate's score, as a JSON path into its fields")
    strategy: str = Field("dense", min_length=1, description="the strategy of the selections")
    loads: bool = Field(
        False,
        description="what it found is offered to the model as tools of their own: the search then ranks the turns that "
        "follow, and is no selection by itself",
    )
    query_pattern: Pattern | None = Field(
        None, description="only calls whose query matches this regular expression, for a name that others use too"
    )

    @model_validator(mode="after")
    def _reads_something(self) -> RouterTool:
        if not (self.candidates or self.parser or self.pattern):
            raise ValueError(f"{self.name}: expected candidates (a JSON path), parser or pattern")
        return self


class ProxyTool(_Entry):
    """A tool whose arguments name the skill that it calls."""

    skill_id: TemplateText = Field(
        description="the skill that is called, from the arguments: {server_name}/{tool_name}"
    )
    arguments: Path | None = Field(
        None, description="argument that holds the skill's arguments, an object or JSON text; absent: all others"
    )
    each: Path | None = Field(
        None,
        description="JSON path to a list in the arguments whose items are calls of their own; name and arguments are "
        "then those of the item",
    )


def as_entries(value: Any) -> Any:
    """One entry or a list of them; in a variable as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"expected a JSON list of objects: {error}") from error
    return [value] if isinstance(value, dict) else value


class Route:
    """The entries that a tool name may stand for, in the order in which they are tried."""

    __slots__ = ("proxies", "routers")

    def __init__(self, routers: tuple[RouterTool, ...], proxies: tuple[ProxyTool, ...]) -> None:
        self.routers = routers
        self.proxies = proxies


class ToolRoutes:
    """Looks tool names up. Entries in front hide those behind them that match the same name."""

    def __init__(self, *layers: tuple[list[RouterTool], list[ProxyTool]]) -> None:
        self._layers = layers
        self._known: dict[str, Route | None] = {}

    def of(self, name: str) -> Route | None:
        """What the name stands for; None for a skill."""
        if name not in self._known:
            if len(self._known) >= _KEPT_NAMES:
                self._known.clear()
            self._known[name] = self._look_up(name)
        return self._known[name]

    def _look_up(self, name: str) -> Route | None:
        names = {name, _SEPARATORS.split(name)[-1]}
        for routers, proxies in self._layers:
            found = Route(
                tuple(entry for entry in routers if _matches(entry, names)),
                tuple(entry for entry in proxies if _matches(entry, names)),
            )
            if found.routers or found.proxies:
                return found
        return None


def _matches(entry: _Entry, names: set[str]) -> bool:
    return any(fnmatchcase(name, entry.name) for name in names)
