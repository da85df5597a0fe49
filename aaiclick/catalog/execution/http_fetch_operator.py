"""Operator `http_fetch`: rows of a document from the web. Only public addresses, and AAICLICK_PRIVATE_HOSTS."""

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
from aaiclick.catalog.execution.operator_run import OperatorRun
from aaiclick.catalog.operators.config import HttpFetchConfig
from aaiclick.data.io.ssrf import MAX_REDIRECTS, check_url, guarded_session, without_query
from aaiclick.errors import SecretError

CHUNK_BYTES = 1 << 16
BATCH_ROWS = 1024
DECODED_BYTES = 1 << 30
"""Most memory of the decoded rows of a Parquet document."""

JSON_VALUES = 10_000_000
CSV_VALUES = 100_000_000
CSV_COLUMNS = 10_000
"""Limits of text documents: two bytes of JSON can take a hundred bytes of memory."""

SUCCESS_STATUSES = range(200, 300)
REDIRECTS = (301, 302, 303, 307, 308)
GET_REDIRECTS = (301, 302, 303)
"""Redirects after which a POST becomes a GET without a body."""


async def run_fetch(run: OperatorRun) -> Mapping[str, object]:
    """Fetch the document; its records are the rows of the output."""
    settings = cast("HttpFetchConfig", run.settings)
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            body = await _fetch_document(settings, {secret.host for secret in run.secrets if secret.host is not None})
    except (TimeoutError, aiohttp.ClientError) as error:
        reason = "the request timed out" if isinstance(error, TimeoutError) else str(error)
        raise OperatorError(f"{without_query(settings.url)} could not be fetched: {reason}.") from error
    (output,) = run.definition.outputs
    return {output: await asyncio.to_thread(_parse_records, body, settings)}


@dataclass(frozen=True)
class _Request:
    """A request to one server."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


async def _fetch_document(settings: HttpFetchConfig, hosts: Set[str]) -> bytes:
    """Return the document; secrets bound to a host are sent only to `hosts`."""
    request = _first_request(settings)
    async with guarded_session(allow_private=False) as session:
        for _ in range(MAX_REDIRECTS + 1):
            check_url(request.url, allow_private=False)
            _check_hosts(request.url, hosts)
            async with session.request(
                request.method, request.url, data=request.body, headers=request.headers, allow_redirects=False
            ) as response:
                if response.status not in REDIRECTS:
                    return await _read_body(response, settings)
                target = urljoin(request.url, response.headers.get("Location", ""))
                request = _follow_redirect(request, response.status, target)
    raise OperatorError(f"{without_query(settings.url)} redirects more than {MAX_REDIRECTS} times.")


def _first_request(settings: HttpFetchConfig) -> _Request:
    # Secrets are already filled in: everything here is text.
    parameters = {key: _to_text(value) for key, value in settings.parameters.items()}
    headers = {key: _to_text(value) for key, value in settings.headers.items()} | {"Accept-Encoding": "identity"}
    url = settings.url + (("&" if "?" in settings.url else "?") + urlencode(parameters) if parameters else "")
    body = None if settings.body is None else json.dumps(settings.body).encode()
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    return _Request(settings.method, url, headers, body)


def _follow_redirect(request: _Request, status: int, target: str) -> _Request:
    """Return the request after a redirect. Headers and body are not sent to another origin."""
    method, body = request.method, request.body
    if status in GET_REDIRECTS and method == "POST":
        method, body = "GET", None
    if _get_origin(target) == _get_origin(request.url):
        return _Request(method, target, request.headers, body)
    if body is not None:
        raise OperatorError(
            f"{without_query(request.url)} redirects a request with a body to another server.",
            remedy="Send it to that server's address.",
        )
    return _Request(method, target, {"Accept-Encoding": "identity"}, None)


def _check_hosts(url: str, hosts: Set[str]) -> None:
    if hosts - {_get_origin(url)}:
        raise SecretError(
            f"{without_query(url)} is not at {min(hosts)}, which a secret of this request is bound to.",
            remedy="Use that host, or have an admin set the secret without --host.",
        )


def _get_origin(url: str) -> str:
    """Return scheme, host and port, parsed by the library that connects."""
    try:
        parts = URL(url)
    except ValueError:
        return ""
    host = parts.raw_host or ""
    shown = f"[{host}]" if ":" in host else host.lower()
    return f"{parts.scheme}://{shown}" + ("" if parts.is_default_port() else f":{parts.explicit_port}")


async def _read_body(response: aiohttp.ClientResponse, settings: HttpFetchConfig) -> bytes:
    if response.status not in SUCCESS_STATUSES:
        raise OperatorError(
            f"{without_query(settings.url)} answered with status {response.status}.", remedy="Check the address."
        )
    body = bytearray()
    async for chunk in response.content.iter_chunked(CHUNK_BYTES):
        body += chunk
        if len(body) > settings.max_bytes:
            raise OperatorError(
                f"{without_query(settings.url)} is larger than {settings.max_bytes:,} bytes.",
                remedy="Raise max_bytes if that is expected.",
            )
    return bytes(body)


def _to_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_records(body: bytes, settings: HttpFetchConfig) -> object:
    _check_size(body, settings)
    try:
        match settings.format:
            case "csv":
                return pyarrow.csv.read_csv(io.BytesIO(body))
            case "parquet":
                return _parse_parquet(body, settings)
            case "jsonl":
                return [json.loads(line) for line in body.splitlines() if line.strip()]
            case _:
                return _extract_records(json.loads(body), settings)
    except ValueError as error:  # includes pyarrow's errors
        raise OperatorError(
            f"{without_query(settings.url)} is not {settings.format}: {error}.", remedy="Correct the format."
        ) from None


def _check_size(body: bytes, settings: HttpFetchConfig) -> None:
    """Check the number of values, estimated from separators; the estimate is never too low."""
    match settings.format:
        case "csv":
            header = re.match(rb"[\r\n]*([^\r\n]*)", body)
            columns = 1 + (header.group(1).count(b",") if header else 0)
            _check_limit(CSV_COLUMNS, columns, "columns", settings)
            _check_limit(CSV_VALUES, sum(map(body.count, (b",", b"\n", b"\r"))), "values", settings)
        case "json" | "jsonl":
            _check_limit(JSON_VALUES, sum(map(body.count, (b",", b"[", b"{", b"\n"))), "values", settings)
        case _:
            pass


def _check_limit(limit: int, count: int, noun: str, settings: HttpFetchConfig) -> None:
    if count > limit:
        raise OperatorError(
            f"{without_query(settings.url)} has more than {limit:,} {noun}.",
            remedy="Fetch a part of it, or read it with create_object_from_file in a task of your own.",
        )


def _parse_parquet(body: bytes, settings: HttpFetchConfig) -> pyarrow.Table:
    """Decode in small batches: a few kilobytes of Parquet can expand to any number of rows."""
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


def _extract_records(document: object, settings: HttpFetchConfig) -> Any:
    for step in settings.records.split(".") if settings.records else ():
        fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
        if step not in fields:
            raise OperatorError(f"The document has no {settings.records!r}.", remedy="Correct records.")
        document = fields[step]
    if isinstance(document, dict):
        return [document]
    if isinstance(document, list) and all(isinstance(row, dict) for row in cast("list[Any]", document)):
        return cast("list[Any]", document)
    raise OperatorError(
        "The document is not a list of records.", remedy="Set records, for example records: data.items."
    )
