"""A scripted assistant: calls MCP tools and keeps their answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from aaiclick.mcp.tool_results import MAX_BYTES
from tests.documentation import BLOCKS


class Assistant:
    """Calls tools of a server, counts the calls, and keeps all answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.calls = 0
        self.answers: list[str] = []

    async def __call__(self, tool: str, **arguments: object) -> dict[str, Any]:
        self.calls += 1
        result = await self._client.call_tool(tool, arguments)
        text = result.content[0].text
        assert len(text.encode()) <= MAX_BYTES
        self.answers.append(text)
        return json.loads(text)


@asynccontextmanager
async def open_http_client(url: str, key: str) -> AsyncIterator[Client]:
    """Connect with an API key as docs/mcp.md says."""
    [text] = [block.text for block in BLOCKS if block.page == "mcp.md" and '"url"' in block.text]
    program = json.loads(text.replace("https://aaiclick.example.org", url).replace("aai_…", key))["mcpServers"][
        "aaiclick"
    ]
    async with (
        httpx2.AsyncClient(headers=program["headers"], timeout=60) as http_client,
        Client(streamable_http_client(program["url"], http_client=http_client)) as client,
    ):
        yield client
