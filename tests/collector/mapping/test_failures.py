"""Which kind of failure an error's type and text tell."""

from __future__ import annotations

from typing import Any

import pytest

from collector.mapping.failures import classify, http_kind, is_error_result, of_quoted
from pickwise.settings import Settings


@pytest.mark.parametrize(
    ("error_type", "text", "kind"),
    [
        ("pydantic_core.ValidationError", "", "invalid_arguments"),
        ("json.JSONDecodeError", "Expecting value", "invalid_arguments"),
        ("TypeError", "get() got an unexpected keyword argument 'x'", "invalid_arguments"),
        ("TypeError", "get() missing 1 required positional argument: 'a'", "invalid_arguments"),
        ("TypeError", "no rooms left in 上海", None),
        ("", "4 validation errors for convert_currency", "invalid_arguments"),
        ("TOOL_ERROR", "the following mandatory input parameters are not present: a", "invalid_arguments"),
        ("fastmcp.exceptions.NotFoundError", "Unknown tool: 'launch_rocket'", "not_found"),
        ("", "Model tried to call unavailable tool 'x'", "not_found"),
        ("ValueError", "Invoking `x()` failed as no tool with that name is available.", "not_found"),
        ("", "reservation not found", None),
        ("asyncio.CancelledError", "", "cancelled"),
        ("AbortError", "This operation was aborted", "cancelled"),
        ("httpx.ReadTimeout", "", "timeout"),
        ("", "The read operation timed out", "timeout"),
        ("openai.RateLimitError", "", "rate_limited"),
        ("PermissionError", "[Errno 13]", "permission_denied"),
        ("HTTPError", "HTTP Error 404: Not Found", "http_4xx"),
        ("", "request failed with status code 503", "http_5xx"),
        ("", "status: 429", "rate_limited"),
        ("common.ToolBoom", "no rooms left in 上海 for 2 nights (upstream 503)", None),
        ("", "", None),
        ("timeout", "", "timeout"),
        ("rate_limited", "whatever", "rate_limited"),
        ("permission_denied", "", "permission_denied"),
        ("not_found", "", "not_found"),
        ("http_5xx", "", "http_5xx"),
        ("cancelled", "request timed out", "cancelled"),
        ("deadline_exceeded", "", "timeout"),
        ("404", "", "http_4xx"),
        ("503", "", "http_5xx"),
        ("429", "", "rate_limited"),
        ("tool_error", "request timed out", "timeout"),
        ("tool_error", "it broke", None),
    ],
)
def test_classify(error_type: str, text: str, kind: str | None) -> None:
    assert classify(error_type, text) == kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, None),
        (400, "http_4xx"),
        (401, "permission_denied"),
        (408, "timeout"),
        (429, "rate_limited"),
        (500, "http_5xx"),
    ],
)
def test_http_kind(status: int, kind: str | None) -> None:
    assert http_kind(status) == kind


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        ('{"isError": true}', True),
        ('{"\\u0069sError": true}', True),
        ('  {"isError": true}', True),
        ('{"isError": false}', False),
        ('{"content": "isError"}', False),
        ("done", False),
        ({"isError": True}, True),
        ('{"error": "no"}', True),
        ('{"err\\u006fr": "no"}', True),
        ('{"error": null}', False),
        ('{"error": "no", "rooms": 1}', False),
        ("error", False),
    ],
)
def test_a_result_says_itself_that_it_is_an_error(result: Any, failed: bool) -> None:
    assert is_error_result(result) is failed


@pytest.mark.parametrize(
    ("text", "flag", "kind"),
    [
        ("no rooms left", True, "tool_error"),
        ('{"error": "request timed out"}', None, "timeout"),
        # What the frameworks say in place of a result: Agent Framework, Semantic Kernel, Agno.
        ('Error: Requested function "launch_rocket" not found.', None, "not_found"),
        ("Error: Argument parsing failed.", None, "invalid_arguments"),
        ("The tool call with name `x` is not part of the provided tools, please try again.", None, "not_found"),
        ("The tool call arguments are malformed. Arguments must be in JSON format.", None, "invalid_arguments"),
        ("Error while decoding function arguments: '{' was never closed", None, "invalid_arguments"),
        # A tool's own words.
        ("Error rate: 2 %", None, None),
        ("There is no such tool in the shed", None, None),
        ("Error: unknown tool x", False, None),
    ],
)
def test_a_quoted_result_that_is_a_failure(text: str, flag: bool | None, kind: str | None) -> None:
    failure = of_quoted(text, flag, "x", Settings())
    assert (failure and (failure.kind or "tool_error")) == kind
