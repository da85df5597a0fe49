"""Synchronous client of the HTTP API: runs the asynchronous one on a background event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from aaiclick.api.jobs import Job
from aaiclick.api.objects import FileFormat
from aaiclick.client.async_client import AsyncClient
from aaiclick.client.endpoint_decorators import Endpoint, Listing
from aaiclick.client.endpoints import SyncEndpoints
from aaiclick.client.requests import ApiRequest

P = ParamSpec("P")
T = TypeVar("T")


class Client(SyncEndpoints):
    """Synchronous version of `AsyncClient`. Thread-safe.

    ```python
    with Client(url, key) as client:
        created = client.create_job("nightly", "shop.load", {"day": "2026-11-16"})
        print(client.get_job(created.id).status)
    ```
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, timeout_seconds: float = 60.0) -> None:
        self._client = AsyncClient(url, key, timeout_seconds=timeout_seconds)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="aaiclick-client")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and stop the event loop."""
        if self._loop.is_closed():
            return
        self._wait_for(self._client.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait_for(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _iterate(self, source: AsyncGenerator[T]) -> Iterator[T]:
        async def next_item() -> T | None:
            return await anext(source, None)

        while (item := self._wait_for(next_item())) is not None:
            yield item

    def perform(self, declared: Endpoint[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait_for(self._client.perform(declared, *args, **kwargs))

    def iterate(self, declared: Listing[P, T], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._iterate(self._client.iterate(declared, *args, **kwargs))

    def call(self, call: ApiRequest[T]) -> T:
        """Send one request; return its response, or raise the error of its problem code."""
        return self._wait_for(self._client.call(call))

    def wait_for_job(self, job_id: int) -> Job:
        """Wait until a job has finished and return it."""
        return self._wait_for(self._client.wait_for_job(job_id))

    def export_object(self, table_id: str, format: FileFormat = "jsonl") -> Iterator[bytes]:  # noqa: A002
        """Stream all rows of an Object in a file format; raises UnreachableError if the connection breaks."""
        return self._iterate(self._client.export_object(table_id, format))
