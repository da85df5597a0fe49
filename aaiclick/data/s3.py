"""Objects of S3 and of stores that speak its protocol: addresses, signed requests, uploads in parts.

Requests are signed here (AWS Signature Version 4, in the Authorization header) and sent by this process, as every other
download is. ClickHouse never learns the keys, so no query text, query log or process list can show them; a signature in
a header, unlike a presigned URL, does not end up in the logs of proxies either. Redirects are not followed: the one
that matters, a bucket in another region, is recognised by its header and asked for there.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import os
import re
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

import aiohttp
from yarl import URL

from aaiclick.data.errors import DataError, IngestError
from aaiclick.data.guard import check_url, guarded_session
from aaiclick.errors import SettingsError

PART = 8 << 20
"""Bytes in one part of an upload; it doubles every thousand parts, since there may be only ten thousand."""

RETRIES = 3
SCHEME = "s3://"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_HOST_LABEL = re.compile(r"[a-z0-9][a-z0-9-]*[a-z0-9]")
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,80})</Code>")
_UPLOAD_ID = re.compile(rb"<UploadId>([^<]{1,2000})</UploadId>")


@dataclass(frozen=True)
class S3Access:
    """How to reach S3: keys, region, endpoint. Without keys requests are unsigned, as public objects allow.

    `endpoint` is the address of a store that is not Amazon's (MinIO, R2, Ceph); since you name it, it may be private.
    """

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    region: str = ""
    endpoint: str = ""

    def __post_init__(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            raise SettingsError(
                "Of the two S3 keys one is missing.",
                remedy="Give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or none.",
            )
        if self.region and not _REGION.fullmatch(self.region):
            raise SettingsError(f"{self.region[:40]!r} is not a region of S3.", remedy="Use one like 'eu-central-1'.")
        if self.endpoint:
            check_url(self.endpoint, allow_private=True)
        if not "".join((self.access_key, self.secret_key, self.session_token)).isascii():
            raise SettingsError("The S3 keys hold characters that no key has.")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> S3Access:
        """What the standard variables say: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or
        AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
        """
        return cls(
            access_key=environ.get("AWS_ACCESS_KEY_ID", ""),
            secret_key=environ.get("AWS_SECRET_ACCESS_KEY", ""),
            session_token=environ.get("AWS_SESSION_TOKEN", ""),
            region=environ.get("AWS_REGION", "") or environ.get("AWS_DEFAULT_REGION", ""),
            endpoint=environ.get("AWS_ENDPOINT_URL_S3", "") or environ.get("AWS_ENDPOINT_URL", ""),
        )


@dataclass(frozen=True)
class S3Object:
    """One object in a bucket."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, text: str) -> S3Object:
        bucket, _, key = text.removeprefix(SCHEME).partition("/")
        if not _BUCKET.fullmatch(bucket) or ".." in bucket:
            raise DataError(f"{bucket[:80]!r} is not the name of a bucket.", remedy="Write s3://bucket/key.")
        if not key or len(key.encode()) > 1024:
            raise DataError(f"{text[:80]!r} names no object.", remedy="Write s3://bucket/key, of 1 to 1024 bytes.")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    def url(self, access: S3Access) -> str:
        """Its address. A bucket that is no host name, or at another endpoint, stands in the path."""
        path = quote(self.key, safe="/-_.~")
        if access.endpoint:
            return f"{access.endpoint.rstrip('/')}/{self.bucket}/{path}"
        host = f"s3.{access.region or 'us-east-1'}.amazonaws.com"
        host += ".cn" if access.region.startswith("cn-") else ""
        if _HOST_LABEL.fullmatch(self.bucket) and len(self.bucket) <= 63:
            return f"https://{self.bucket}.{host}/{path}"
        return f"https://{host}/{self.bucket}/{path}"


# --- keys in queries ---------------------------------------------------------------------------------------------

KEY, SECRET, TOKEN = "{aai_s3_key:String}", "{aai_s3_secret:String}", "{aai_s3_token:String}"
"""What stands for the keys in a query by which ClickHouse itself asks S3. Their values are parameters of the request,
since ClickHouse logs the text of a query that it cannot read as it is, secrets included.
"""


def keys_of(text: str) -> dict[str, str]:
    """The parameters of a query that the keys of this process's environment stand in for; most need none."""
    if "{aai_s3_" not in text:
        return {}
    access = S3Access.from_environment()
    return {"aai_s3_key": access.access_key, "aai_s3_secret": access.secret_key, "aai_s3_token": access.session_token}


# --- signatures --------------------------------------------------------------------------------------------------


def signed_headers(
    access: S3Access, method: str, url: str, query: Mapping[str, str], body: bytes, now: datetime
) -> dict[str, str]:
    """The headers that prove who asks, by AWS Signature Version 4; none without keys."""
    parts = urlsplit(url)
    headers = {"host": parts.netloc}
    if not access.access_key:
        return headers
    stamp, digest = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
    headers |= {"x-amz-content-sha256": digest, "x-amz-date": stamp}
    if access.session_token:
        headers["x-amz-security-token"] = access.session_token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join((method, parts.path, query_text(query), lines, names, digest))
    scope = f"{stamp[:8]}/{access.region or 'us-east-1'}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{access.secret_key}".encode()
    for step in scope.split("/"):
        key = hmac.digest(key, step.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return headers


def query_text(query: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe='-_.~')}={quote(query[name], safe='-_.~')}" for name in sorted(query))


# --- requests ----------------------------------------------------------------------------------------------------


class BusyError(Exception):
    """The server answered that it cannot serve now."""


class S3Session:
    """Signed requests about one object; knows the region of the bucket once it was told."""

    def __init__(self, session: aiohttp.ClientSession, target: S3Object, access: S3Access, allow_private: bool) -> None:
        self._session = session
        self._target = target
        self._access = access
        self._allow_private = allow_private

    async def ask(
        self, method: str, query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> aiohttp.ClientResponse:
        """One request, in the region of the bucket; answers other than 200 and 204 are errors that tell the code."""
        for moved in (False, True):
            response = await self._send(method, query or {}, body)
            region = response.headers.get("x-amz-bucket-region", "")
            elsewhere = response.status in (301, 307, 400) and _REGION.fullmatch(region) and not self._access.endpoint
            if moved or not elsewhere or region == self._access.region:
                break
            response.release()
            self._access = replace(self._access, region=region)
        if response.status not in (200, 204):
            raise await self._failure(response)
        return response

    async def _send(self, method: str, query: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        url = self._target.url(self._access)
        check_url(url, self._allow_private)
        headers = await asyncio.to_thread(signed_headers, self._access, method, url, query, body, datetime.now(UTC))
        address = URL(f"{url}?{query_text(query)}" if query else url, encoded=True)
        headers |= {"accept-encoding": "identity"}
        return await self._session.request(
            method, address, data=io.BytesIO(body) if body else None, headers=headers, allow_redirects=False
        )

    async def _failure(self, response: aiohttp.ClientResponse) -> Exception:
        """Only the code of the answer is told: its other words may hold the key or what was signed."""
        found = _CODE.search(await response.content.read(65_536))
        words = f"{response.status}{f' {found.group(1).decode()}' if found else ''}"
        response.release()
        if response.status >= 500 or response.status == 429:
            return BusyError(f"the server answered {words}")
        signed = "The keys may lack the right" if self._access.access_key else "The request was unsigned: give keys"
        remedy = f"{signed}; see S3 in docs/data.md." if response.status in (401, 403) else ""
        return IngestError(f"{self._target} could not be reached: the server answered {words}.", remedy=remedy)


def _session(access: S3Access, allow_private: bool) -> tuple[aiohttp.ClientSession, bool]:
    private = allow_private or bool(access.endpoint)
    return guarded_session(private), private


async def download(target: S3Object, access: S3Access, allow_private: bool, piece: int) -> AsyncGenerator[bytes, None]:
    """The bytes of an object."""
    session, private = _session(access, allow_private)
    async with session:
        response = await S3Session(session, target, access, private).ask("GET")
        try:
            async for each in response.content.iter_chunked(piece):
                yield each
        finally:
            response.close()


async def upload(target: S3Object, access: S3Access, pieces: AsyncIterable[bytes], allow_private: bool = False) -> None:
    """Store bytes as they come, in parts: the object appears when it is complete, and never half."""
    session, private = _session(access, allow_private)
    async with session:
        await _Upload(S3Session(session, target, access, private), target).run(pieces)


async def delete(target: S3Object, access: S3Access, allow_private: bool = False) -> None:
    """Delete an object; one that is not there is no error."""
    session, private = _session(access, allow_private)
    try:
        async with session:
            (await S3Session(session, target, access, private).ask("DELETE")).release()
    except (aiohttp.ClientError, TimeoutError, BusyError) as error:
        raise DataError(f"{target} could not be deleted: {error}.", remedy="Try again later.") from None


class _Upload:
    def __init__(self, session: S3Session, target: S3Object) -> None:
        self._session = session
        self._target = target
        self._id = ""
        self._tags: list[str] = []

    async def run(self, pieces: AsyncIterable[bytes]) -> None:
        try:
            waiting = bytearray()
            async for piece in pieces:
                waiting += piece
                while len(waiting) >= (size := PART << (len(self._tags) // 1000)):
                    await self._part(bytes(waiting[:size]))
                    del waiting[:size]
            if not self._id:
                await self._asked("PUT", {}, bytes(waiting))
                return
            if waiting:
                await self._part(bytes(waiting))
            await self._complete()
        except BaseException:
            if self._id:
                await asyncio.shield(self._abort())
            raise

    async def _asked(self, method: str, query: Mapping[str, str], body: bytes = b"") -> tuple[bytes, str]:
        """A request, again while the server is busy: parts are numbered, so one sent twice does no harm."""
        for attempt in range(RETRIES + 1):
            try:
                response = await self._session.ask(method, query, body)
                async with response:
                    return await response.read(), response.headers.get("ETag", "")
            except (aiohttp.ClientError, TimeoutError, BusyError) as error:
                if attempt == RETRIES:
                    raise DataError(
                        f"{self._target} could not be written: {error}.", remedy="Try again later."
                    ) from None
                await asyncio.sleep(min(0.2 * 2**attempt, 5))
        raise AssertionError

    async def _part(self, body: bytes) -> None:
        if not self._id:
            answer, _ = await self._asked("POST", {"uploads": ""})
            found = _UPLOAD_ID.search(answer)
            if found is None:
                raise DataError(f"{self._target} could not be written: the server began no upload.")
            self._id = found.group(1).decode()
        number = str(len(self._tags) + 1)
        _, tag = await self._asked("PUT", {"partNumber": number, "uploadId": self._id}, body)
        self._tags.append(tag)

    async def _complete(self) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(tag)}</ETag></Part>"
            for number, tag in enumerate(self._tags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        answer, _ = await self._asked("POST", {"uploadId": self._id}, body)
        failed = _CODE.search(answer)  # an answer of 200 may yet hold an error
        if failed is not None:
            raise DataError(f"{self._target} could not be written: {failed.group(1).decode()}.")

    async def _abort(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(15):
                await self._asked("DELETE", {"uploadId": self._id})
