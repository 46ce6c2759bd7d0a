"""Ratel's half of `bench.ratel_side_by_side`: runs in Ratel's own environment and knows nothing of Pickwise.

    python ratel_side.py TASK.json ANSWER.json

TASK: {"tools": [{id, name, description}], "turns": [{"query", "invoked": [id]}], "checkpoints": [turns],
"held_out": [query], "methods": [name], "url": embeddings endpoint, "model": name}. ANSWER: {method: {turns: [the best
five ids of each held-out query]}}, with the keys as text.

Learning goes the way Ratel documents for live use: adaptive ranking is enabled on a catalog with an empty graph, each
turn is a search, followed by one invocation event for each tool that was called.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from ratel_ai import ExecutableTool, IntentGraph, ToolCatalog  # type: ignore[import-not-found]

#: Length of a learning search: an invocation teaches only where the search before it offered the tool.
OFFERED = 50
SHOWN = 5


async def main(task_path: str, answer_path: str) -> None:
    task = json.loads(Path(task_path).read_text())
    answer = {method: await _run(task, method) for method in task["methods"]}
    Path(answer_path).write_text(json.dumps(answer))


async def _run(task: dict[str, Any], method: str) -> dict[str, list[list[str]]]:
    catalog = ToolCatalog(method=method, embedding={"url": task["url"], "model": task["model"]})
    await catalog.register([ExecutableTool(**tool, execute=lambda args: args) for tool in task["tools"]])
    graph = IntentGraph()
    catalog.experimental_enable_adaptive_ranking(graph)
    found = {}
    for done in range(len(task["turns"]) + 1):
        if done in task["checkpoints"]:
            found[str(done)] = [await _best(catalog, query, SHOWN) for query in task["held_out"]]
            print(f"{method}, {done} turns: {graph.cluster_count} clusters", file=sys.stderr, flush=True)
        if done < len(task["turns"]):
            turn = task["turns"][done]
            await _best(catalog, turn["query"], OFFERED)
            for tool_id in turn["invoked"]:
                catalog.record_event({"type": "invoke_start", "tool_id": tool_id, "args_size_bytes": 0})
    return found


async def _best(catalog: ToolCatalog, query: str, k: int) -> list[str]:
    hits = await catalog.search_async(query, k, "agent")
    return [hit.tool_id for hit in sorted(hits, key=lambda hit: hit.rank)]


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
