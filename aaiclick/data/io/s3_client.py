"""Client for S3 and compatible stores: addresses, signed requests, multipart uploads.

This process signs the requests (AWS Signature Version 4, in the Authorization header) and sends them. ClickHouse does
not get the keys, so no query text, query log or process list contains them; unlike a presigned URL, a signature in a
header does not appear in proxy logs either. Redirects are not followed, except that a request for a bucket in another
region is sent again to the region that the response header names.
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
from urllib.parse import quote, unquote_plus, urlsplit
from xml.sax.saxutils import escape, unescape

import aiohttp
from yarl import URL

from aaiclick.data.errors import DataError, IngestError
from aaiclick.data.io.ssrf import check_url, guarded_session
from aaiclick.errors import SettingsError

PART_BYTES = 8 << 20
"""Bytes in one part of an upload; doubled every 1,000 parts, since S3 accepts at most 10,000."""

RETRIES = 3
SCHEME = "s3://"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_HOST_LABEL = re.compile(r"[a-z0-9][a-z0-9-]*[a-z0-9]")
_REGION = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,80})</Code>")
_LISTED_KEY = re.compile(r"<Key>([^<]*)</Key>")
_NEXT_TOKEN = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")
_UPLOAD_ID = re.compile(rb"<UploadId>([^<]{1,2000})</UploadId>")


@dataclass(frozen=True)
class S3Access:
    """Credentials, region and endpoint of S3. Without keys requests are unsigned, which public objects allow.

    `endpoint` is the address of another store than Amazon's (MinIO, R2, Ceph); it may be a private address.

    ```python
    S3Access("user", "password", region="eu-central-1", endpoint="http://minio:9000")
    ```
    """

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    region: str = ""
    endpoint: str = ""

    def __post_init__(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            raise SettingsError(
                "One of the two S3 keys is missing.",
                remedy="Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither.",
            )
        if self.region and not _REGION.fullmatch(self.region):
            raise SettingsError(f"{self.region[:40]!r} is not a region of S3.", remedy="Use one like 'eu-central-1'.")
        if self.endpoint:
            check_url(self.endpoint, allow_private=True)
        if not "".join((self.access_key, self.secret_key, self.session_token)).isascii():
            raise SettingsError("The S3 keys contain invalid characters.")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> S3Access:
        """Read the standard environment variables of AWS.

        AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION or AWS_DEFAULT_REGION,
        AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
        """
        return cls(
            access_key=environ.get("AWS_ACCESS_KEY_ID", ""),
            secret_key=environ.get("AWS_SECRET_ACCESS_KEY", ""),
            session_token=environ.get("AWS_SESSION_TOKEN", ""),
            region=environ.get("AWS_REGION", "") or environ.get("AWS_DEFAULT_REGION", ""),
            endpoint=environ.get("AWS_ENDPOINT_URL_S3", "") or environ.get("AWS_ENDPOINT_URL", ""),
        )


def split_address(text: str) -> tuple[str, str]:
    """Return bucket and key of `s3://bucket/key`."""
    bucket, _, key = text.removeprefix(SCHEME).partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise DataError(f"{bucket[:80]!r} is not the name of a bucket.", remedy="Write s3://bucket/key.")
    return bucket, key


@dataclass(frozen=True)
class S3Object:
    """One object in a bucket."""

    bucket: str
    key: str

    @classmethod
    def parse(cls, text: str) -> S3Object:
        bucket, key = split_address(text)
        if not key or len(key.encode()) > 1024:
            raise DataError(f"{text[:80]!r} names no object.", remedy="Write s3://bucket/key, of 1 to 1024 bytes.")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    def url(self, access: S3Access) -> str:
        """Return the URL: virtual-hosted style, or path style for other endpoints and buckets that are no host name."""
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
"""Placeholders for the keys in a query by which ClickHouse itself reads S3. Their values are sent as query parameters,
since ClickHouse logs the unmasked text of a query that it cannot parse.
"""


def key_parameters(text: str) -> dict[str, str]:
    """Return the values of the key placeholders in a query, from the environment; empty if it has none."""
    if "{aai_s3_" not in text:
        return {}
    access = S3Access.from_environment()
    return {"aai_s3_key": access.access_key, "aai_s3_secret": access.secret_key, "aai_s3_token": access.session_token}


# --- signatures --------------------------------------------------------------------------------------------------


def signed_headers(
    access: S3Access, method: str, url: str, query: Mapping[str, str], body: bytes, now: datetime
) -> dict[str, str]:
    """Return the headers of AWS Signature Version 4; unsigned without keys."""
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


class ServerBusyError(Exception):
    """The server responded with 429 or 5xx."""


class S3Session:
    """Signed requests for one object; remembers the bucket's region after the first response that names it."""

    def __init__(
        self, session: aiohttp.ClientSession, s3_object: S3Object, access: S3Access, allow_private: bool
    ) -> None:
        self._session = session
        self._object = s3_object
        self._access = access
        self._allow_private = allow_private

    async def request(
        self, method: str, query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> aiohttp.ClientResponse:
        """Send one request to the bucket's region; raises unless the status is 200 or 204."""
        for is_retry in (False, True):
            response = await self._send_signed(method, query or {}, body)
            region = response.headers.get("x-amz-bucket-region", "")
            in_other_region = (
                response.status in (301, 307, 400) and _REGION.fullmatch(region) and not self._access.endpoint
            )
            if is_retry or not in_other_region or region == self._access.region:
                break
            response.release()
            self._access = replace(self._access, region=region)
        if response.status not in (200, 204):
            raise await self._response_error(response)
        return response

    async def _send_signed(self, method: str, query: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        url = self._object.url(self._access)
        check_url(url, self._allow_private)
        headers = await asyncio.to_thread(signed_headers, self._access, method, url, query, body, datetime.now(UTC))
        address = URL(f"{url}?{query_text(query)}" if query else url, encoded=True)
        headers |= {"accept-encoding": "identity"}
        return await self._session.request(
            method, address, data=io.BytesIO(body) if body else None, headers=headers, allow_redirects=False
        )

    async def _response_error(self, response: aiohttp.ClientResponse) -> Exception:
        """Return an error with the response's code only: the body may contain the key or the signed text."""
        match = _CODE.search(await response.content.read(65_536))
        status = f"{response.status}{f' {match.group(1).decode()}' if match else ''}"
        response.release()
        if response.status >= 500 or response.status == 429:
            return ServerBusyError(f"the server answered {status}")
        signed = "The keys may lack permission" if self._access.access_key else "The request was unsigned: give keys"
        remedy = f"{signed}; see S3 in docs/data.md." if response.status in (401, 403) else ""
        return IngestError(f"{self._object} could not be reached: the server answered {status}.", remedy=remedy)


def _open_session(access: S3Access, allow_private: bool) -> tuple[aiohttp.ClientSession, bool]:
    private = allow_private or bool(access.endpoint)
    return guarded_session(private), private


async def download_object(
    s3_object: S3Object, access: S3Access, allow_private: bool, chunk_bytes: int
) -> AsyncGenerator[bytes, None]:
    """Stream the bytes of an object."""
    session, private = _open_session(access, allow_private)
    async with session:
        response = await S3Session(session, s3_object, access, private).request("GET")
        try:
            async for chunk in response.content.iter_chunked(chunk_bytes):
                yield chunk
        finally:
            response.close()


async def list_keys(bucket: str, prefix: str, access: S3Access, allow_private: bool) -> AsyncGenerator[str, None]:
    """Yield the keys of a bucket that start with a prefix, in the order of their names."""
    session, private = _open_session(access, allow_private)
    query = {"list-type": "2", "prefix": prefix, "encoding-type": "url"}
    async with session:
        requests = S3Session(session, S3Object(bucket, ""), access, private)
        while True:
            async with await requests.request("GET", query) as response:
                text = (await response.read()).decode()
            for key in _LISTED_KEY.findall(text):
                yield unquote_plus(unescape(key))
            token = _NEXT_TOKEN.search(text)
            if token is None:
                return
            query["continuation-token"] = unescape(token.group(1))


async def upload_object(
    s3_object: S3Object, access: S3Access, pieces: AsyncIterable[bytes], allow_private: bool = False
) -> None:
    """Upload a stream in parts; the object becomes visible only when complete."""
    session, private = _open_session(access, allow_private)
    async with session:
        await _MultipartUpload(S3Session(session, s3_object, access, private), s3_object).run(pieces)


async def delete_object(s3_object: S3Object, access: S3Access, allow_private: bool = False) -> None:
    """Delete an object; a missing one is not an error."""
    session, private = _open_session(access, allow_private)
    try:
        async with session:
            (await S3Session(session, s3_object, access, private).request("DELETE")).release()
    except (aiohttp.ClientError, TimeoutError, ServerBusyError) as error:
        raise DataError(f"{s3_object} could not be deleted: {error}.", remedy="Try again later.") from None


class _MultipartUpload:
    def __init__(self, session: S3Session, s3_object: S3Object) -> None:
        self._session = session
        self._object = s3_object
        self._upload_id = ""
        self._etags: list[str] = []

    async def run(self, pieces: AsyncIterable[bytes]) -> None:
        try:
            buffer = bytearray()
            async for piece in pieces:
                buffer += piece
                while len(buffer) >= (size := PART_BYTES << (len(self._etags) // 1000)):
                    await self._upload_part(bytes(buffer[:size]))
                    del buffer[:size]
            if not self._upload_id:
                await self._request_with_retries("PUT", {}, bytes(buffer))
                return
            if buffer:
                await self._upload_part(bytes(buffer))
            await self._complete_upload()
        except BaseException:
            if self._upload_id:
                await asyncio.shield(self._abort_upload())
            raise

    async def _request_with_retries(
        self, method: str, query: Mapping[str, str], body: bytes = b""
    ) -> tuple[bytes, str]:
        """Send a request; retry while the server is busy. Parts are numbered, so a repeated one is harmless."""
        for attempt in range(RETRIES + 1):
            try:
                response = await self._session.request(method, query, body)
                async with response:
                    return await response.read(), response.headers.get("ETag", "")
            except (aiohttp.ClientError, TimeoutError, ServerBusyError) as error:
                if attempt == RETRIES:
                    raise DataError(
                        f"{self._object} could not be written: {error}.", remedy="Try again later."
                    ) from None
                await asyncio.sleep(min(0.2 * 2**attempt, 5))
        raise AssertionError

    async def _upload_part(self, body: bytes) -> None:
        if not self._upload_id:
            answer, _ = await self._request_with_retries("POST", {"uploads": ""})
            match = _UPLOAD_ID.search(answer)
            if match is None:
                raise DataError(f"{self._object} could not be written: the server started no multipart upload.")
            self._upload_id = match.group(1).decode()
        number = str(len(self._etags) + 1)
        _, tag = await self._request_with_retries("PUT", {"partNumber": number, "uploadId": self._upload_id}, body)
        self._etags.append(tag)

    async def _complete_upload(self) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(tag)}</ETag></Part>"
            for number, tag in enumerate(self._etags, 1)
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        answer, _ = await self._request_with_retries("POST", {"uploadId": self._upload_id}, body)
        error_code = _CODE.search(answer)  # a response with status 200 may contain an error
        if error_code is not None:
            raise DataError(f"{self._object} could not be written: {error_code.group(1).decode()}.")

    async def _abort_upload(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(15):
                await self._request_with_retries("DELETE", {"uploadId": self._upload_id})
