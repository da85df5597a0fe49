"""Asynchronous client of clickhouse-connect."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

import pyarrow as pa

T = TypeVar("T")

class StreamContext(Generic[T]):
    async def __aenter__(self) -> Self: ...
    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...
    def __aiter__(self) -> AsyncIterator[T]: ...

class AsyncClient:
    server_version: str
    server_settings: dict[str, object]
    async def query_arrow(
        self,
        query: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        use_strings: bool | None = None,
    ) -> pa.Table: ...
    async def query_arrow_stream(
        self,
        query: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        use_strings: bool | None = None,
    ) -> StreamContext[pa.RecordBatch]: ...
    async def command(
        self,
        cmd: str,
        parameters: Mapping[str, object] | None = None,
        data: str | bytes | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> object: ...
    async def raw_insert(
        self,
        table: str | None = None,
        column_names: Sequence[str] | None = None,
        insert_block: str | bytes | AsyncIterable[bytes] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> object: ...
    async def raw_stream(
        self,
        query: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        fmt: str | None = None,
    ) -> StreamContext[bytes]: ...
    async def close(self) -> None: ...
