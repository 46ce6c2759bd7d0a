"""The matrix of docs/dialects.md: what each recording carries, and what of it our tables tell.

    python -m tests.end_to_end.dialect_matrix      writes it into the page

``PRESENT`` was counted by hand in the recordings themselves; the tests of the dialects say how.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from analytics.tables import Tables
from tests.conftest import SHARED
from tests.end_to_end.recordings import names, project_of, requests_of, take

PAGE = Path(__file__).parents[2] / "docs" / "dialects.md"
_START, _END = "<!-- matrix: start -->\n", "<!-- matrix: end -->\n"


class Told(NamedTuple):
    """Counts of one recording, in the order of the matrix."""

    #: Different questions of the user.
    queries: int
    #: Different tools that some turn offered.
    offered: int
    #: Tool calls that a model proposed.
    picks: int
    calls: int
    #: Calls whose arguments are known, also unreadable ones.
    arguments: int
    #: Calls whose outcome is known.
    results: int
    failures: int
    #: Calls of a tool that does not exist.
    invented: int
    sessions: int


TITLES = ("query", "offered tools", "picks", "calls", "arguments", "results", "failures", "invented names", "session")

_PYDANTIC = Told(7, 10, 9, 9, 9, 9, 4, 1, 6)
_AI_SDK = Told(6, 5, 8, 8, 8, 8, 4, 1, 1)
_OPENAI_AGENTS = "openai-agents-0.24.0+openinference-instrumentation-openai-agents-2.6.0"
_SMOLAGENTS = "smolagents-1.26.0+openinference-0.1.43"
_LANGGRAPH = Told(6, 10, 8, 8, 8, 8, 4, 1, 6)

#: Of ours, see tests/collector/mapping/recordings/NOTES.md: all that the scenario has, without or with its sessions.
_WHOLE = Told(6, 10, 10, 10, 10, 10, 4, 1, 0)
_WHOLE_IN_SESSIONS = _WHOLE._replace(sessions=6)
_ANTHROPIC = "anthropic-2.14.0+opentelemetry-instrumentation-0.62.4"
_OPENAI = "openai-3.57.0+opentelemetry-instrumentation-0.62.4"
_GOOGLE = "google-genai-3.6.1"
_GOOGLE_OTEL = "google-genai-2.34.0+opentelemetry-instrumentation-google-genai-1.3b0"
_OPENAI_AGENTS_TRACELOOP = "openai-agents-0.24.0+opentelemetry-instrumentation-0.62.4"

_OURS = {
    **{f"agent-framework-1.23.0/{api}": _WHOLE for api in ("chat", "responses")},
    "agno-3.1.10+openinference-1.0.15": _WHOLE_IN_SESSIONS,
    "ai-sdk-5.0.277": _WHOLE_IN_SESSIONS,
    "anthropic-2.14.0+openinference-3.1.0": _WHOLE,
    f"{_ANTHROPIC}/attributes": _WHOLE,
    f"{_ANTHROPIC}/events": _WHOLE,
    "boto3-1.44.8+openinference-0.1.61": _WHOLE,
    # The flag of a failed result is left out.
    "boto3-1.44.8+opentelemetry-instrumentation-bedrock-0.62.4": _WHOLE._replace(failures=1),
    "boto3-1.44.8+opentelemetry-instrumentation-botocore-0.66b2": _WHOLE._replace(offered=0),
    # No menu, and nothing of an unknown tool; by default neither words, names nor arguments.
    "claude-code-2.1.197/default": Told(0, 0, 9, 9, 0, 9, 3, 0, 6),
    **{f"claude-code-2.1.197/{more}": Told(6, 0, 9, 9, 9, 9, 3, 0, 6) for more in ("details", "traces")},
    # No menu.
    **{f"codex-0.171.0/{signals}": _WHOLE_IN_SESSIONS._replace(offered=0) for signals in ("logs", "traces")},
    # Seventeen tools of its own beside the ten.
    "copilot-1.0.102": _WHOLE_IN_SESSIONS._replace(offered=27),
    # The model names the unknown tool twice; one call a step, so that nothing follows what is refused.
    "dspy-3.4.1+openinference-0.1.48/react": Told(6, 10, 11, 11, 11, 11, 5, 2, 0),
    # One step a question.
    "dspy-3.4.1+openinference-0.1.48/native": Told(6, 10, 7, 7, 7, 7, 4, 1, 0),
    # Spans of a client and of its server, no model.
    "fastmcp-3.4.11+opentelemetry-instrumentation-mcp-0.62.4": Told(0, 0, 0, 10, 10, 10, 4, 1, 0),
    # Sixteen tools of its own beside the ten.
    "gemini-cli-0.61.0": _WHOLE_IN_SESSIONS._replace(offered=26),
    **{f"{_GOOGLE_OTEL}/{content}": _WHOLE for content in ("attributes", "events")},
    # The SDK runs the tools: what the model said on the way is not told, the unknown tool ends its turn.
    f"{_GOOGLE_OTEL}/auto": Told(6, 10, 8, 8, 8, 8, 2, 0, 0),
    f"{_GOOGLE}+openinference-1.4.14/loop": _WHOLE,
    f"{_GOOGLE}+openinference-1.4.14/auto": Told(6, 10, 9, 9, 9, 9, 3, 0, 0),
    f"{_GOOGLE}+opentelemetry-instrumentation-google-generativeai-0.62.4": _WHOLE,
    "langfuse-5.0.4": _WHOLE_IN_SESSIONS,
    # The unreadable arguments end their turn.
    "langgraph-js-1.7.3+openinference-4.1.1": Told(6, 10, 9, 9, 9, 9, 4, 1, 6),
    "litellm-1.110.2": _WHOLE,
    # The unreadable arguments are repaired, so the call succeeds.
    "llama-index-core-0.14.25+openinference-4.6.1": _WHOLE._replace(failures=3),
    "logfire-5.4.0": _WHOLE,
    # Requests are cut at 1 kB, and with them the menu.
    "mastra-0.24.9": _WHOLE_IN_SESSIONS._replace(offered=0),
    "mastra-1.71.0": _WHOLE_IN_SESSIONS,
    "mlflow-3.17.2": _WHOLE,
    # Neither menu nor what the model returned; the unknown tool is in no message.
    f"{_OPENAI_AGENTS_TRACELOOP}/chat": Told(6, 0, 9, 9, 9, 9, 3, 0, 0),
    f"{_OPENAI_AGENTS_TRACELOOP}/responses": _WHOLE,
    **{f"openai-js-6.49.0+{library}": _WHOLE for library in ("openinference-4.2.7", "traceloop-0.27.0")},
    **{f"openai-3.57.0+openinference-0.1.66/{api}": _WHOLE for api in ("chat", "responses")},
    **{f"{_OPENAI}/{api}": _WHOLE for api in ("chat", "responses")},
    # No menu: that a tool does not exist is only in the words of the loop that called it.
    f"{_OPENAI}/events": _WHOLE._replace(offered=0, invented=0),
    "openai-2.54.0+openlit-1.45.0": _WHOLE,
    "openai-2.54.0+opentelemetry-instrumentation-openai-v2-2.1b0": _WHOLE._replace(offered=0),
    # No menu; the unreadable arguments are repaired, and the model calls once more.
    "qwen-code-0.15.10": Told(6, 0, 11, 11, 11, 11, 3, 1, 6),
    "semantic-kernel-1.45.0": _WHOLE,
    "strands-agents-1.62.0": _WHOLE_IN_SESSIONS,
}

PRESENT = {
    **_OURS,
    "ai-sdk-6.0.326/json-generate": _AI_SDK,
    "ai-sdk-6.0.326/proto-stream": _AI_SDK,
    # No menu is exported, and the model's calls only in the messages between its agents.
    "autogen-agentchat-0.7.5": Told(6, 0, 10, 10, 10, 10, 4, 1, 0),
    "crewai-1.15.30+openinference-1.1.21": Told(6, 10, 10, 10, 10, 10, 4, 1, 0),
    # A server's spans: no model, no arguments. (The question stands in an attribute of the host's own.)
    "fastmcp-4.2.3+mcp-2.3.0/native": Told(0, 0, 0, 10, 0, 10, 4, 1, 0),
    "fastmcp-4.2.3+mcp-2.3.0/openinference": Told(0, 0, 0, 10, 0, 10, 4, 1, 0),
    "google-adk-2.13.0/content": Told(6, 10, 9, 9, 9, 9, 4, 1, 6),
    # Content is off: names, ids and errors only.
    "google-adk-2.13.0/default": Told(0, 10, 9, 9, 0, 9, 4, 1, 6),
    "google-adk-2.13.0/schema1": Told(6, 10, 9, 9, 9, 9, 4, 1, 6),
    "haystack-ai-3.4.1+openinference-0.1.46": Told(6, 10, 10, 10, 10, 10, 4, 1, 0),
    "langgraph-1.2.24+langsmith-otel-0.15.1": _LANGGRAPH,
    "langgraph-1.2.24+openinference-instrumentation-langchain-0.1.80": _LANGGRAPH,
    "langgraph-1.2.24+opentelemetry-instrumentation-langchain-0.62.4": _LANGGRAPH,
    # Its log events leave out the call that could not be read.
    "langgraph-1.2.24+opentelemetry-instrumentation-langchain-0.62.4/events": Told(6, 10, 7, 7, 7, 7, 3, 1, 6),
    f"{_OPENAI_AGENTS}/chat-api": Told(6, 0, 10, 10, 10, 10, 4, 1, 0),
    # A seventh request repeats the booking, which fails once more.
    f"{_OPENAI_AGENTS}/custom-model": Told(6, 0, 11, 11, 11, 11, 5, 1, 0),
    f"{_OPENAI_AGENTS}/responses-api": Told(6, 10, 10, 10, 10, 10, 4, 1, 0),
    **{f"pydantic-ai-2.68.0/{version}": _PYDANTIC for version in ("v2", "v3", "v4", "v5", "v5-grpc", "v6")},
    # Unreadable arguments reach the tool as they are, and it succeeds.
    f"{_SMOLAGENTS}/code": Told(6, 10, 9, 9, 9, 9, 3, 1, 0),
    f"{_SMOLAGENTS}/openai-http": Told(6, 10, 10, 10, 10, 10, 3, 1, 0),
    # The refused call has no span, its step names no tool; of the unknown one only the name is told.
    f"{_SMOLAGENTS}/toolcalling": Told(6, 10, 9, 9, 8, 9, 2, 1, 0),
}
#: What we do not find, and why.
MISSED = {
    # The arguments of the unknown tool are in the program text that an error quotes.
    f"{_SMOLAGENTS}/code": {"arguments": 8},
    # Its records name the span around all turns, so that the turns of a trace are one: a tool called again is one pick.
    f"{_ANTHROPIC}/events": {"picks": 8},
    # What tells of a call does not tell which turn it was of: a tool that is called again for a prompt is one pick, as
    # are all tools of MCP servers where names are left out.
    "claude-code-2.1.197/default": {"picks": 5},
    "claude-code-2.1.197/details": {"picks": 7},
    "claude-code-2.1.197/traces": {"picks": 7},
    "codex-0.171.0/logs": {"picks": 8},
    "codex-0.171.0/traces": {"picks": 8},
    "qwen-code-0.15.10": {"picks": 8},
    # The turns of a question are one span: a tool called again in it is one pick.
    f"{_GOOGLE_OTEL}/auto": {"picks": 7},
    # The step that named the unknown tool has no output; what was asked in it is in no other turn.
    "mastra-0.24.9": {
        **{"queries": 5, "picks": 9, "calls": 9, "arguments": 8, "results": 9},
        **{"failures": 3, "invented": 0, "sessions": 5},
    },
    # Each request is a trace of its own, without a session: nothing ties a result to the call before.
    "litellm-1.110.2": {"results": 1, "failures": 1},
    # Without menu and output a model span is no turn.
    f"{_OPENAI_AGENTS_TRACELOOP}/chat": {"queries": 0, "picks": 0},
    # The results have no id.
    f"{_OPENAI}/events": {"results": 0, "failures": 0},
}

_FOUND = """
with asked as (
    select project, count(distinct query) queries, sum(n_picks)::int picks, count(distinct session_id) sessions
    from selections group by project
),
offered as (
    select project, count(distinct skill_id) offered from candidates group by project
),
called as (
    select project, count(*) calls, count(arguments) arguments, count(ok) results, count(*) filter (not ok) failures,
        count(*) filter (name_class in ('unknown', 'near_miss') or error_kind = 'not_found') invented
    from calls group by project
)
select project, coalesce(queries, 0) queries, coalesce(offered, 0) offered, coalesce(picks, 0) picks, calls, arguments,
    results, failures, invented, coalesce(sessions, 0) sessions
from called left join asked using (project) left join offered using (project)
"""


def found(shared: Path) -> dict[str, Told]:
    """What the tables tell of every recording, after all of them were brought in."""
    recordings = names(shared)
    with tempfile.TemporaryDirectory() as folder:
        take(
            Path(folder), ((project_of(name), request) for name in recordings for request in requests_of(shared, name))
        )
        rows = {row.pop("project"): Told(**row) for row in Tables(Path(folder)).sql(_FOUND)}
    return {name: rows[project_of(name)] for name in recordings}


def matrix(told: dict[str, Told]) -> str:
    """The table in Markdown: found of present."""
    lines = [f"| recording | {' | '.join(TITLES)} |", "|---" * (len(TITLES) + 1) + "|"]
    for name, counts in sorted(told.items()):
        cells = (
            f"{ours}/{theirs}" if theirs or ours else "–" for ours, theirs in zip(counts, PRESENT[name], strict=True)
        )
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page_with(table: str) -> str:
    """The page with the table in its place."""
    before, _, rest = PAGE.read_text().partition(_START)
    return before + _START + table + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    PAGE.write_text(page_with(matrix(found(SHARED))))
