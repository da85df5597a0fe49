"""`http_fetch` in a task: a document from the web, as rows. Only public addresses, and AAICLICK_PRIVATE_HOSTS."""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlencode, urljoin

import aiohttp
import pyarrow.csv
import pyarrow.parquet
from yarl import URL

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.operators.built_in import HttpFetchConfig
from aaiclick.catalog.running.run import OperatorRun
from aaiclick.data.guard import MAX_REDIRECTS, check_url, guarded_session, without_query
from aaiclick.errors import SecretError

PIECE = 1 << 16
BATCH_ROWS = 1024
DECODED_BYTES = 1 << 30
"""The most that the rows of a Parquet document may take in memory."""

JSON_VALUES = 10_000_000
CSV_VALUES = 100_000_000
CSV_COLUMNS = 10_000
"""The most that a text document may hold: two bytes of JSON can become a hundred bytes of memory."""

GOOD = range(200, 300)
REDIRECTS = (301, 302, 303, 307, 308)
AS_GET = (301, 302, 303)
"""Redirects after which a POST becomes a GET without a body."""


async def run_fetch(run: OperatorRun) -> Mapping[str, Any]:
    """The records of a document are the rows of the output."""
    settings = cast("HttpFetchConfig", run.settings)
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            body = await _fetch(settings, {each.host for each in run.secrets if each.host is not None})
    except (TimeoutError, aiohttp.ClientError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        raise OperatorError(f"{without_query(settings.url)} could not be fetched: {why}.") from error
    (output,) = run.work.outputs
    return {output: await asyncio.to_thread(_records, body, settings)}


@dataclass(frozen=True)
class _Request:
    """What is sent to one server."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


async def _fetch(settings: HttpFetchConfig, hosts: Set[str]) -> bytes:
    """The document; secrets that are bound are sent to `hosts` only."""
    request = _first_request(settings)
    async with guarded_session(allow_private=False) as session:
        for _ in range(MAX_REDIRECTS + 1):
            check_url(request.url, allow_private=False)
            _check_hosts(request.url, hosts)
            async with session.request(
                request.method, request.url, data=request.body, headers=request.headers, allow_redirects=False
            ) as response:
                if response.status not in REDIRECTS:
                    return await _body(response, settings)
                target = urljoin(request.url, response.headers.get("Location", ""))
                request = _redirected(request, response.status, target)
    raise OperatorError(f"{without_query(settings.url)} redirects more than {MAX_REDIRECTS} times.")


def _first_request(settings: HttpFetchConfig) -> _Request:
    # Secrets were filled in where the task runs: everything here is text.
    parameters = {key: _text(value) for key, value in settings.parameters.items()}
    headers = {key: _text(value) for key, value in settings.headers.items()} | {"Accept-Encoding": "identity"}
    url = settings.url + (("&" if "?" in settings.url else "?") + urlencode(parameters) if parameters else "")
    body = None if settings.body is None else json.dumps(settings.body).encode()
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    return _Request(settings.method, url, headers, body)


def _redirected(request: _Request, status: int, target: str) -> _Request:
    """The request after a redirect. Headers and body that were meant for one origin are not sent to another."""
    method, body = request.method, request.body
    if status in AS_GET and method == "POST":
        method, body = "GET", None
    if _origin(target) == _origin(request.url):
        return _Request(method, target, request.headers, body)
    if body is not None:
        raise OperatorError(
            f"{without_query(request.url)} redirects a request with a body to another server.",
            remedy="Send it to that server's address.",
        )
    return _Request(method, target, {"Accept-Encoding": "identity"}, None)


def _check_hosts(url: str, hosts: Set[str]) -> None:
    if hosts - {_origin(url)}:
        raise SecretError(
            f"{without_query(url)} is not at {min(hosts)}, which a secret of this request is bound to.",
            remedy="Use that host, or have an admin set the secret without --host.",
        )


def _origin(url: str) -> str:
    """Scheme, host and port, read as the library that connects reads them."""
    try:
        parts = URL(url)
    except ValueError:
        return ""
    host = parts.raw_host or ""
    shown = f"[{host}]" if ":" in host else host.lower()
    return f"{parts.scheme}://{shown}" + ("" if parts.is_default_port() else f":{parts.explicit_port}")


async def _body(response: aiohttp.ClientResponse, settings: HttpFetchConfig) -> bytes:
    if response.status not in GOOD:
        raise OperatorError(
            f"{without_query(settings.url)} answered with status {response.status}.", remedy="Check the address."
        )
    whole = bytearray()
    async for piece in response.content.iter_chunked(PIECE):
        whole += piece
        if len(whole) > settings.max_bytes:
            raise OperatorError(
                f"{without_query(settings.url)} is larger than {settings.max_bytes:,} bytes.",
                remedy="Raise max_bytes if that is expected.",
            )
    return bytes(whole)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _records(body: bytes, settings: HttpFetchConfig) -> Any:
    _check_size(body, settings)
    try:
        match settings.format:
            case "csv":
                return pyarrow.csv.read_csv(io.BytesIO(body))
            case "parquet":
                return _parquet(body, settings)
            case "jsonl":
                return [json.loads(line) for line in body.splitlines() if line.strip()]
            case _:
                return _found(json.loads(body), settings)
    except ValueError as error:  # pyarrow's errors are among them
        raise OperatorError(
            f"{without_query(settings.url)} is not {settings.format}: {error}.", remedy="Correct the format."
        ) from None


def _check_size(body: bytes, settings: HttpFetchConfig) -> None:
    """Values are counted by what separates them, which is never too low."""
    match settings.format:
        case "csv":
            header = re.match(rb"[\r\n]*([^\r\n]*)", body)
            columns = 1 + (header.group(1).count(b",") if header else 0)
            _refuse_beyond(CSV_COLUMNS, columns, "columns", settings)
            _refuse_beyond(CSV_VALUES, sum(map(body.count, (b",", b"\n", b"\r"))), "values", settings)
        case "json" | "jsonl":
            _refuse_beyond(JSON_VALUES, sum(map(body.count, (b",", b"[", b"{", b"\n"))), "values", settings)
        case _:
            pass


def _refuse_beyond(most: int, count: int, noun: str, settings: HttpFetchConfig) -> None:
    if count > most:
        raise OperatorError(
            f"{without_query(settings.url)} has more than {most:,} {noun}.",
            remedy="Fetch a part of it, or read it with create_object_from_file in a task of your own.",
        )


def _parquet(body: bytes, settings: HttpFetchConfig) -> pyarrow.Table:
    """Decoded in small batches: a few kilobytes of Parquet can stand for any number of rows."""
    file = pyarrow.parquet.ParquetFile(io.BytesIO(body))
    groups = (file.metadata.row_group(index) for index in range(file.metadata.num_row_groups))
    size = sum(group.total_byte_size for group in groups)
    batches: list[pyarrow.RecordBatch] = []
    decoded = 0
    for batch in file.iter_batches(batch_size=BATCH_ROWS) if size <= DECODED_BYTES else ():
        batches.append(batch)
        decoded += batch.nbytes
        if decoded > DECODED_BYTES:
            break
    if max(size, decoded) > DECODED_BYTES:
        raise OperatorError(
            f"{without_query(settings.url)} expands to more than {DECODED_BYTES:,} bytes.",
            remedy="Fetch a part of it, or read it with create_object_from_file in a task of your own.",
        )
    return pyarrow.Table.from_batches(batches, schema=file.schema_arrow)


def _found(document: Any, settings: HttpFetchConfig) -> Any:
    for step in settings.records.split(".") if settings.records else ():
        fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
        if step not in fields:
            raise OperatorError(f"The document has no {settings.records!r}.", remedy="Correct records.")
        document = fields[step]
    if isinstance(document, dict):
        return [document]
    if isinstance(document, list) and all(isinstance(row, dict) for row in cast("list[Any]", document)):
        return cast("list[Any]", document)
    raise OperatorError("The document is not a list of records.", remedy="Say where the list is: records: data.items.")
