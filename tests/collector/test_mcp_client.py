"""The tools of an MCP server, over real sockets: as JSON and as a stream, page by page, and what goes wrong."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from collector import mcp_client
from collector.mcp_client import McpProblem, list_tools
from tests.collector.mcp_server import TOOLS, Server, serving


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("page_size", [1, 2, 10])
def test_every_page_is_read(streams: bool, page_size: int) -> None:
    with serving(Server(streams=streams, page_size=page_size)) as server:
        assert list_tools(server.url) == ("weather 1.2", TOOLS)


def test_a_session_is_opened_used_and_closed() -> None:
    with serving(Server()) as server:
        list_tools(server.url)
    steps = [(http, method) for http, method, _ in server.seen]
    assert steps[:2] == [("POST", "initialize"), ("POST", "notifications/initialized")]
    assert steps[2:] == [("POST", "tools/list"), ("POST", "tools/list"), ("DELETE", "")]
    for http, _, headers in server.seen[1:]:
        assert headers["mcp-session-id"] == "s1"
        assert headers["mcp-protocol-version"] == "2025-06-18"
        assert http == "DELETE" or headers["content-type"] == "application/json"
    assert "application/json, text/event-stream" in server.seen[0][2]["accept"]


def test_headers_go_with_every_request() -> None:
    with serving(Server(token="t0p")) as server:
        with pytest.raises(McpProblem, match=r"--header 'Authorization: Bearer TOKEN' \(401\)"):
            list_tools(server.url)
        assert len(list_tools(server.url, {"Authorization": "Bearer t0p"}).tools) == len(TOOLS)


def test_an_empty_server_has_no_tools() -> None:
    with serving(Server(tools=[])) as server:
        assert list_tools(server.url).tools == []


@pytest.mark.parametrize(
    ("behaviour", "says"),
    [
        ({"capabilities": {"prompts": {}}}, "offers no tools, only prompts"),
        ({"results": {"initialize": {"error": {"code": -32022, "message": "unsupported"}}}}, "refused: unsupported"),
        ({"results": {"initialize": {"result": {}}}}, "expected a protocolVersion"),
        ({"results": {"initialize": {"result": 5}}}, "expected a result"),
        ({"results": {"initialize": {}}}, "expected JSON-RPC, got application/json"),
        ({"results": {"tools/list": {"result": {"tools": "many"}}}}, "expected an object with a list `tools`"),
        ({"results": {"tools/list": {"result": {"tools": [5]}}}}, "expected an object with a list `tools`"),
        ({"results": {"tools/list": {"result": {"tools": [], "nextCursor": "a"}}}}, "expected a new string"),
        ({"results": {"tools/list": {"error": {"code": -32603, "message": "broken"}}}}, r"tools/list: refused: broken"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_what_is_wrong_is_said(behaviour: dict[str, Any], says: str, streams: bool) -> None:
    if streams:
        says = says.replace("application/json", "text/event-stream")
    with serving(Server(streams=streams, **behaviour)) as server, pytest.raises(McpProblem, match=says) as raised:
        list_tools(server.url)
    assert str(raised.value).startswith(server.url)


def test_another_path_is_named_with_the_mend() -> None:
    with serving(Server()) as server, pytest.raises(McpProblem, match=r"most servers answer at /mcp \(404\)"):
        list_tools(server.url.replace("/mcp", "/other"))


@pytest.mark.parametrize("streams", [False, True])
def test_what_is_too_much_is_refused(streams: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_client, "MAX_BYTES", 2**20)
    large = [{"name": f"t{n}", "description": "x" * 2**19} for n in range(3)]
    with serving(Server(tools=large, streams=streams)) as server, pytest.raises(McpProblem, match="more than 1 MiB"):
        list_tools(server.url)


def test_endless_pages_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_client, "MAX_PAGES", 2)
    with serving(Server(page_size=1)) as server, pytest.raises(McpProblem, match="more than 2 pages"):
        list_tools(server.url)


def test_silence_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        with pytest.raises(McpProblem, match="no answer in time"):
            list_tools(url, timeout_s=0.3)


def test_a_closed_port_is_named_without_what_may_be_secret() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(McpProblem) as raised:
        list_tools(f"http://ada:hidden@127.0.0.1:{port}/mcp?key=hidden")
    assert str(raised.value).startswith(f"http://127.0.0.1:{port}/mcp: can't be reached")
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("url", ["ftp://host/mcp", "127.0.0.1:8000/mcp", "http://", "http://[", ""])
def test_only_addresses_of_the_web_are_taken(url: str) -> None:
    with pytest.raises(McpProblem):
        list_tools(url)
