"""Asynchronous client of the HTTP API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

import httpx

from aaiclick.api.field_types import Page
from aaiclick.api.jobs import Job
from aaiclick.api.objects import FileFormat
from aaiclick.client import requests
from aaiclick.client.endpoint_decorators import Endpoint, Listing
from aaiclick.client.endpoints import AsyncEndpoints
from aaiclick.client.requests import ApiRequest
from aaiclick.client.tls import find_ssl_context
from aaiclick.errors import SettingsError, UnansweredError, UnreachableError
from aaiclick.settings import get_settings

P = ParamSpec("P")
T = TypeVar("T")

MAX_ATTEMPTS = 3
"""Attempts per request if the connection breaks; requests that create something carry an Idempotency-Key."""

PAUSE_SECONDS = 0.3
POLL_SECONDS = 0.5
EXPORT_READ_SECONDS = 600.0
"""Read timeout of an export: some formats are written a million rows at a time."""


class AsyncClient(AsyncEndpoints):
    """Client of one server; `url` and `key` default to AAICLICK_SERVER and AAICLICK_API_KEY.

    ```python
    async with AsyncClient(url, key) as client:
        async for job in client.list_jobs(status="FAILED"):
            print(job.name)
    ```
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout_seconds: float = 60.0) -> None:
        settings = get_settings()
        server_url = url or settings.server
        if server_url is None:
            raise SettingsError("No server is configured.", remedy="Pass its URL, or set AAICLICK_SERVER.")
        secret = key or (settings.api_key.get_secret_value() if settings.api_key else None)
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._url = server_url
        self._seconds = timeout_seconds
        self._http = httpx.AsyncClient(
            base_url=server_url, headers=headers, timeout=timeout_seconds, verify=find_ssl_context(server_url)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def call(self, call: ApiRequest[T], *, timeout_seconds: float | None = None) -> T:
        """Send one request; return its response, or raise the error of its problem code."""
        limit = httpx.USE_CLIENT_DEFAULT if timeout_seconds is None else timeout_seconds
        for attempt in range(MAX_ATTEMPTS):
            try:
                response = await self._http.request(
                    call.method, call.path, params=dict(call.query), json=call.body, headers=dict(call.headers),
                    timeout=limit,
                )  # fmt: skip
            except httpx.TransportError as error:
                if attempt == MAX_ATTEMPTS - 1 or not _is_repeatable(call):
                    raise self._unreachable_error(error) from error
            else:
                _raise_problem(response)
                return requests.parse_response(call, response.content)
            await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
        raise AssertionError("unreachable")

    def _unreachable_error(self, error: Exception) -> UnreachableError:
        error_class = UnansweredError if isinstance(error, httpx.TimeoutException) else UnreachableError
        return error_class(
            f"The server at {self._url} does not answer: {error or type(error).__name__}.",
            remedy="Check AAICLICK_SERVER, and that 'aaiclick server start' or 'aaiclick up' runs there.",
        )

    async def perform(self, declared: Endpoint[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(declared.build(*args, **kwargs))

    def iterate(self, declared: Listing[P, T], *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        return self._iterate_pages(declared.build(*args, **kwargs))

    async def _iterate_pages(self, call: ApiRequest[Page[T]]) -> AsyncGenerator[T]:
        while True:
            page = await self.call(call)
            for item in page.items:
                yield item
            if page.next is None:
                return
            call = call.with_cursor(page.next)

    async def wait_for_job(self, job_id: int) -> Job:
        """Wait until a job has finished and return it."""
        while True:
            job = await self.get_job(job_id)
            if job.completed_at is not None:
                return job
            await asyncio.sleep(POLL_SECONDS)

    async def export_object(self, table_id: str, format: FileFormat = "jsonl") -> AsyncGenerator[bytes]:  # noqa: A002
        """Stream all rows of an Object in a file format; raises UnreachableError if the connection breaks."""
        path = requests.build_path("objects", table_id, "export")
        has_begun = False
        try:
            limit = httpx.Timeout(self._seconds, read=max(self._seconds, EXPORT_READ_SECONDS))
            async with self._http.stream("GET", path, params={"format": format}, timeout=limit) as response:
                if not response.is_success:
                    await response.aread()
                    _raise_problem(response)
                async for piece in response.aiter_bytes():
                    has_begun = True
                    yield piece
        except httpx.TransportError as error:
            if not has_begun:
                raise self._unreachable_error(error) from error
            raise UnreachableError(
                f"The server at {self._url} closed the connection during a response.",
                remedy="Try again; the server's log may have the reason.",
            ) from error


def _is_repeatable(call: ApiRequest[Any]) -> bool:
    return call.method != "POST" or "Idempotency-Key" in call.headers


def _raise_problem(response: httpx.Response) -> None:
    """Raise the error of a response that is not successful."""
    if response.is_success:
        return
    try:
        problem = response.json()
    except json.JSONDecodeError:
        problem = None
    raise requests.parse_problem(response.status_code, problem)
