"""`http_fetch` in a task: a document from the web, as rows. Only public addresses, and AAICLICK_PRIVATE_HOSTS."""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlencode, urljoin, urlsplit

import aiohttp
import pyarrow.csv
import pyarrow.parquet

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.operators.built_in import HttpFetchConfig
from aaiclick.catalog.running.run import OperatorRun
from aaiclick.data.guard import MAX_REDIRECTS, check_url, guarded_session, without_query

PIECE = 1 << 16
GOOD = range(200, 300)
REDIRECTS = (301, 302, 303, 307, 308)


async def run_fetch(run: OperatorRun) -> Mapping[str, Any]:
    """The records of a document are the rows of the output."""
    settings = cast("HttpFetchConfig", run.settings)
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            body = await _fetch(settings)
    except (TimeoutError, aiohttp.ClientError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
        raise OperatorError(f"{without_query(settings.url)} could not be fetched: {why}.") from error
    (output,) = run.work.outputs
    return {output: await asyncio.to_thread(_records, body, settings)}


async def _fetch(settings: HttpFetchConfig) -> bytes:
    # Secrets were filled in where the task runs: everything here is text.
    parameters = {key: _text(value) for key, value in settings.parameters.items()}
    headers = {key: _text(value) for key, value in settings.headers.items()} | {"Accept-Encoding": "identity"}
    url = settings.url + (("&" if "?" in settings.url else "?") + urlencode(parameters) if parameters else "")
    body = None if settings.body is None else json.dumps(settings.body).encode()
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
    async with guarded_session(allow_private=False) as session:
        for _ in range(MAX_REDIRECTS + 1):
            check_url(url, allow_private=False)
            async with session.request(
                settings.method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                if response.status not in REDIRECTS:
                    return await _body(response, settings)
                target = urljoin(url, response.headers.get("Location", ""))
            if urlsplit(target).netloc != urlsplit(url).netloc:
                headers = {"Accept-Encoding": "identity"}  # what was meant for one server is not for another
            url = target
    raise OperatorError(f"{without_query(settings.url)} redirects more than {MAX_REDIRECTS} times.")


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
    try:
        match settings.format:
            case "csv":
                return pyarrow.csv.read_csv(io.BytesIO(body))
            case "parquet":
                return pyarrow.parquet.read_table(io.BytesIO(body))
            case "jsonl":
                return [json.loads(line) for line in body.splitlines() if line.strip()]
            case _:
                return _found(json.loads(body), settings)
    except ValueError as error:  # pyarrow's errors are among them
        raise OperatorError(
            f"{without_query(settings.url)} is not {settings.format}: {error}.", remedy="Correct the format."
        ) from None


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
