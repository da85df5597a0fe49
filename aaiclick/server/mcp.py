"""MCP tools over HTTP: each request is authenticated, and its tools perform operations as its caller.

Requests are independent of each other (stateless streamable HTTP), so that any server of several can answer them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from starlette.types import Receive, Scope, Send

from aaiclick.api.objects import FileFormat
from aaiclick.client.endpoint_decorators import DeclaredMethod, Endpoint, Listing
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.errors import ConflictError, NotFoundError
from aaiclick.mcp.confirmations import Confirmations, token_used
from aaiclick.mcp.tool_results import shorten
from aaiclick.operations.actor import Permission
from aaiclick.operations.operation import find_operation, write_audit
from aaiclick.server.problem_responses import TooLargeError, public_error, translate_error
from aaiclick.server.query_limits import MAX_QUERIES, QueryLimiter
from aaiclick.server.routing import RequestContext
from aaiclick.store.tenancy import idempotency

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from aaiclick.mcp.server import Tool

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("aaiclick.server")

ROUTE = "POST /mcp"
HOUR_SECONDS = 3600.0
UNAUDITED_ARGUMENTS = frozenset(("confirm", "dag_yaml"))
MAX_AUDITED_TEXT = 500
SMALL_MESSAGE_BYTES = 10_000
MAX_ARGUMENT = 1_000
LONG_ARGUMENTS = frozenset(("sql", "dag_yaml"))
"""Arguments that may be longer than MAX_ARGUMENT: the SDK parses all others as JSON, on the event loop."""


def check_message(body: bytes) -> None:
    """Refuse a message with a long argument; raises TooLargeError."""
    if len(body) <= SMALL_MESSAGE_BYTES:
        return
    try:
        message: Any = json.loads(body)
        arguments: Any = message["params"]["arguments"]
        items: list[tuple[str, object]] = list(arguments.items())
    except (ValueError, LookupError, TypeError, AttributeError):
        return  # no call of a tool: the SDK answers
    for name, value in items:
        if isinstance(value, str) and len(value) > MAX_ARGUMENT and name not in LONG_ARGUMENTS:
            raise TooLargeError(
                f"The argument {name!r:.80} has more than {MAX_ARGUMENT:,} characters.", remedy="Pass a shorter one."
            )


@dataclass(frozen=True)
class Caller:
    """The request that tools are called for, and the bearer token that signs its plans."""

    context: RequestContext
    credential: str | None = field(repr=False)


_caller: ContextVar[Caller] = ContextVar("mcp_caller")
"""The SDK calls tools in the context of their request."""


class McpTools:
    """The tools of one server process. Calls run on threads, since tools are synchronous."""

    def __init__(self, changes_per_hour: int) -> None:
        self._changes_per_hour = changes_per_hour
        self._changed_at: defaultdict[str, deque[float]] = defaultdict(deque)
        self._servers: dict[bool, MCPServer[Any]] = {}
        self._threads = ThreadPoolExecutor(MAX_QUERIES, thread_name_prefix="mcp")
        self._limiter = QueryLimiter()
        self._key = secrets.token_bytes()
        """Signs plans of requests without a credential (--no-auth)."""

    async def handle(self, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of an assistant."""
        changes = self._changes_per_hour > 0 and Permission.WRITER in caller.context.actor.permissions
        server = await asyncio.to_thread(self._load_server, changes)
        _caller.set(caller)
        server.streamable_http_app(stateless_http=True, json_response=True, host="")
        manager = server.session_manager  # of this request: a manager runs once
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _load_server(self, changes: bool) -> MCPServer[Any]:
        """Import the SDK and build the server, at the first request; the import takes a second."""
        try:
            from aaiclick.mcp.server import build_server
        except ModuleNotFoundError:
            raise NotFoundError(
                "This server has no tools for assistants.", remedy="Install aaiclick[mcp] where the server runs."
            ) from None
        if changes not in self._servers:
            self._servers[changes] = build_server(self, changes=changes)
        return self._servers[changes]

    async def call(self, tool: Tool, arguments: Mapping[str, object]) -> str:
        """Write an audit entry and call a tool as the caller of the current request."""
        from aaiclick.mcp.server import render_error

        caller = _caller.get()
        context = caller.context
        try:
            async with self._limiter.acquire_slot(str(context.actor.org_id)):
                await _write_call_audit(context, tool, arguments)
                return await self._run(caller, tool, arguments)
        except Exception as error:
            translated = translate_error(error)
            if translated is None:
                log.exception("request %s failed", context.request_id, exc_info=error)
            return render_error(public_error(translated))

    async def _run(self, caller: Caller, tool: Tool, arguments: Mapping[str, object]) -> str:
        from aaiclick.mcp.server import run_tool

        loop = asyncio.get_running_loop()
        operations = ServerOperations(caller.context, loop)
        confirmations = Confirmations(
            self._key if caller.credential is None else caller.credential.encode(),
            lambda token: operations.wait(self._consume_token(caller.context, token)),
        )
        call = functools.partial(run_tool, tool, operations, confirmations, arguments)
        return await loop.run_in_executor(self._threads, copy_context().run, call)

    async def _consume_token(self, context: RequestContext, token: str) -> int:
        """Mark a token as used in PostgreSQL, for all servers; changes per hour are counted by this one."""
        changed_at = self._changed_at[context.actor.name]
        while changed_at and changed_at[0] < time.monotonic() - HOUR_SECONDS:
            changed_at.popleft()
        org_id = context.actor.org_id
        async with context.app_state.owner_connection() as connection, connection.transaction():
            if await idempotency.lock_idempotency_key(connection, org_id, ROUTE, token) is not None:
                raise token_used()
            if len(changed_at) >= self._changes_per_hour:
                raise ConflictError(
                    f"This credential has changed something {self._changes_per_hour} times within an hour.",
                    remedy="Wait, or change it with the command line or the web UI.",
                )
            response = idempotency.StoredResponse(b"", 200, "")
            await idempotency.store_response(connection, org_id, ROUTE, token, response)
        changed_at.append(time.monotonic())
        return self._changes_per_hour - len(changed_at)


async def _write_call_audit(context: RequestContext, tool: Tool, arguments: Mapping[str, object]) -> None:
    from aaiclick.mcp.server import tool_name

    detail = {
        name: shorten(str(value), MAX_AUDITED_TEXT)
        for name, value in arguments.items()
        if value is not None and name not in UNAUDITED_ARGUMENTS
    }
    async with context.databases.connect() as connection:
        await write_audit(connection, context.audited_actor, "mcp.call", tool_name(tool), detail)


class ServerOperations(SyncEndpoints):
    """Performs operations as the caller of a request, from a thread, on the event loop of the server."""

    def __init__(self, context: RequestContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    def perform(self, declared: Endpoint[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._perform(declared, args, kwargs)

    def iterate(self, declared: Listing[P, T], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        arguments: dict[str, Any] = dict(kwargs)
        while True:
            page = self._perform(declared, args, arguments)
            yield from page.items
            if page.next is None:
                return
            arguments["cursor"] = page.next

    def export_object(self, table_id: str, format: FileFormat = "jsonl") -> Iterator[bytes]:  # noqa: A002
        raise NotImplementedError("no tool exports Objects")

    def wait(self, coroutine: Any) -> Any:
        """Run a coroutine on the event loop of the server and wait for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _perform(self, declared: DeclaredMethod[..., T], args: tuple[object, ...], kwargs: Mapping[str, Any]) -> T:
        return self.wait(self._context.perform(find_operation(declared.resource, declared.name), *args, **kwargs))
