"""Route of the tools for AI assistants (Model Context Protocol, streamable HTTP)."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from aaiclick.operations.actor import Permission
from aaiclick.server.authentication import bearer_token
from aaiclick.server.mcp import Caller, McpTools, check_message
from aaiclick.server.routing import Context, Routes

routes = Routes("mcp")


@routes.post("/mcp", Permission.READER, include_in_schema=False)
async def call_mcp(context: Context, request: Request) -> Response:
    """Answer one message of an AI assistant. Its protocol is JSON-RPC, which OpenAPI does not describe."""
    body = await request.body()
    check_message(body)
    tools: McpTools = request.app.state.mcp_tools
    return McpResponse(tools, Caller(context, bearer_token(request.headers.getlist("authorization"))), body)


class McpResponse(Response):
    """Response that the SDK writes."""

    def __init__(self, tools: McpTools, caller: Caller, message: bytes) -> None:
        super().__init__()
        self._tools = tools
        self._caller = caller
        self._messages: list[Message] = [{"type": "http.request", "body": message, "more_body": False}]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_again() -> Message:
            return self._messages.pop() if self._messages else await receive()

        await self._tools.handle(self._caller, scope, receive_again, send)
