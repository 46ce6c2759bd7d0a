"""Router and proxy tools of common libraries, as their sources and documentation have them.

Names that other tools may bear too are told by the arguments that they take.
"""

from __future__ import annotations

from pickwise.tool_routes import ProxyTool, RouterTool

ROUTERS = [
    # LiveMCPBench's copilot: YAML text, two names a tool.
    RouterTool(
        name="route",
        candidates=["matched_tools[*]", "[*]"],
        parser="mcp_copilot",
        skill_id="{server_name}/{tool_name}",
        query_pattern="<tool_assistant>",
    ),
    # FastMCP's search transforms: definitions as of tools/list, or Markdown.
    RouterTool(name="search_tools", candidates=["[*]"], parser="markdown_headings", strategy="bm25"),
    RouterTool(name="search_tools", query="pattern", candidates=["[*]"], parser="markdown_headings", strategy="regex"),
    # Pydantic AI, by its own function and by a provider's.
    RouterTool(
        name="search_tools", query="queries[*]", candidates=["discovered_tools[*]"], strategy="keyword", loads=True
    ),
    RouterTool(
        name="tool_search", query="queries[*]", candidates=["discovered_tools[*]"], strategy="keyword", loads=True
    ),
    # Haystack's SearchableToolset.
    RouterTool(name="search_tools", query="tool_keywords", parser="loaded_tools", strategy="bm25", loads=True),
    # Anthropic's tool search.
    RouterTool(
        name="tool_search_tool_bm25",
        candidates=["tool_references[*]", "[*]"],
        skill_id="{tool_name}",
        strategy="bm25",
        loads=True,
    ),
    RouterTool(
        name="tool_search_tool_regex",
        query="pattern",
        candidates=["tool_references[*]", "[*]"],
        skill_id="{tool_name}",
        strategy="regex",
        loads=True,
    ),
    # OpenAI's, in the Responses API.
    RouterTool(name="tool_search", query="paths[*]", candidates=["tools[*]"], loads=True),
    # LangGraph BigTool: the tool itself returns ids, its message a printed list.
    RouterTool(name="retrieve_tools", candidates=["[*]"], parser="available_tools", loads=True),
    # Amazon Bedrock AgentCore Gateway.
    RouterTool(name="x_amz_bedrock_agentcore_search", candidates=["tools[*]"], loads=True),
    # mcp-use's server manager.
    RouterTool(name="search_mcp_tools", parser="scored_tools", score="score", loads=True),
    # Stacklok ToolHive's optimizer.
    RouterTool(name="find_tool", query="tool_description", candidates=["tools[*]"], score="score", strategy="hybrid"),
    RouterTool(
        name="optim_find_tool", query="tool_description", candidates=["tools[*]"], score="score", strategy="hybrid"
    ),
    # Docker's MCP gateway.
    RouterTool(name="find-tools", query="prompt", candidates=["tools[*]"]),
    # Composio's tool router, and Rube. Related tools are shown below the primary ones.
    *(
        RouterTool(
            name=f"{prefix}_SEARCH_TOOLS",
            query="queries[*].use_case",
            candidates=[
                f"{data}results[*].{kind}_tool_slugs[*]" for kind in ("primary", "related") for data in ("data.", "")
            ],
        )
        for prefix in ("COMPOSIO", "RUBE")
    ),
    # Klavis Strata: the actions of each server.
    RouterTool(
        name="discover_server_actions",
        query="user_query",
        parser="server_actions",
        skill_id="{server_name}/{name}",
        strategy="keyword",
    ),
]

PROXIES = [
    ProxyTool(name="execute[-_]tool", skill_id="{server_name}/{tool_name}", arguments="params"),
    ProxyTool(name="call_tool", skill_id="{name}", arguments="arguments"),
    ProxyTool(name="call_tool", skill_id="{tool_name}", arguments="parameters"),
    ProxyTool(name="optim_call_tool", skill_id="{tool_name}", arguments="parameters"),
    ProxyTool(name="mcp-exec", skill_id="{name}", arguments="arguments"),
    *(
        ProxyTool(name=f"{prefix}_MULTI_EXECUTE_TOOL", each="tools[*]", skill_id="{tool_slug}", arguments="arguments")
        for prefix in ("COMPOSIO", "RUBE")
    ),
    ProxyTool(name="execute_action", skill_id="{server_name}/{action_name}"),
]
