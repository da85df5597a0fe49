"""Import from and export to S3, against a server that checks signatures."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import traceback
from dataclasses import replace
from datetime import date

import boto3
import pytest
import requests
from aiohttp import web

from aaiclick.data import S3Access, col, create_object_from_file, create_object_from_query, create_object_from_value
from aaiclick.data.errors import DataError, ForbiddenAddressError, IngestError
from aaiclick.data.io import s3_client
from aaiclick.errors import AaiclickError
from tests.integration.moto_server import VARIABLES

pytestmark = pytest.mark.usefixtures("data")

SECRET, TOKEN = "aaiclick-test-secret", "aaiclick-test-token"


@pytest.fixture
def store(moto_endpoint, monkeypatch):
    """An empty bucket `pile`, and the environment variables to access it."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-of-a-test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto_endpoint)
    requests.post(f"{moto_endpoint}/moto-api/reset", timeout=30)
    client = boto3.client("s3")
    client.create_bucket(Bucket="pile", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    yield client
    client.close()


async def test_prefixes_globs_and_partitions(store):
    for day, numbers in {"2024-01-01": [1, 2], "2024-01-02": [3]}.items():
        await (await create_object_from_value({"n": numbers})).export(f"s3://pile/lake/day={day}/part 0.parquet")
    store.put_object(Bucket="pile", Key="lake/_SUCCESS", Body=b"")
    obj = await create_object_from_file("s3://pile/lake/")
    assert await obj.data() == {"n": [1, 2, 3], "day": [date(2024, 1, 1), date(2024, 1, 1), date(2024, 1, 2)]}
    assert (await (await create_object_from_file("s3://pile/lake/*02/*.parquet")).data())["n"] == [3]
    assert await (await create_object_from_file("s3://pile/**/*.parquet")).count() == 3
    with pytest.raises(IngestError, match="has no files"):
        await create_object_from_file("s3://pile/nothing/")


def check_signatures(endpoint, strict):
    requests.post(f"{endpoint}/moto-api/reset-auth", data=b"0" if strict else b"inf", timeout=30)


KEYS = [
    "rows.csv",
    "deep/er/rows.parquet",
    "sp ace/plus+and%25?#.jsonl.gz",
    "ünï/🦆.tsv",
    "a//b/../c.arrow",
    "it's;DROP.orc",
]


@pytest.mark.parametrize("key", KEYS)
async def test_export_and_import_round_trip(store, key):
    values = {"n": [1, None, 3], "s": ["a", "ü", None]}
    format_name = None if "?" not in key else "jsonl"
    obj = await create_object_from_value(values)
    if format_name:
        key = key.replace(".gz", "")
    assert await obj.export(f"s3://pile/{key}", format=format_name) == f"s3://pile/{key}"
    assert [entry["Key"] for entry in store.list_objects_v2(Bucket="pile")["Contents"]] == [key]
    again = await create_object_from_file(f"s3://pile/{key}", format=format_name)
    assert await again.data() == values


async def test_compressed(store):
    obj = await create_object_from_value({"n": list(range(1000))})
    await obj.export("s3://pile/n.csv.gz")
    body = store.get_object(Bucket="pile", Key="n.csv.gz")["Body"].read()
    assert gzip.decompress(body).startswith(b'"n"\n0\n1\n')
    assert await (await create_object_from_file("s3://pile/n.csv.gz")).count() == 1000


async def test_large_export_uses_multipart_upload(store, data, monkeypatch):
    monkeypatch.setattr(s3_client, "PART_BYTES", 5 << 20)
    obj = await create_object_from_query("SELECT number AS n, toString(sipHash64(number)) AS s FROM numbers(600_000)")
    await obj.export("s3://pile/large.csv")
    tag = store.head_object(Bucket="pile", Key="large.csv")["ETag"]
    assert int(tag.strip('"').split("-")[1]) >= 3
    again = await create_object_from_file("s3://pile/large.csv", schema={"s": "String"})
    assert await again.count() == 600_000
    assert await (again["s"] == obj["s"]).all().data() is True
    assert "Uploads" not in store.list_multipart_uploads(Bucket="pile")


async def test_an_export_that_fails_leaves_nothing(store, monkeypatch):
    monkeypatch.setattr(s3_client, "PART_BYTES", 1 << 20)
    obj = await create_object_from_query("SELECT number AS n FROM numbers(2_000_000)")
    bad = obj.select(x=(col("n").cast("String") + (col("n") == 1_900_000).if_else("x", "")).cast("Int64"))
    with pytest.raises(AaiclickError):
        await bad.export("s3://pile/bad.csv")
    assert "Contents" not in store.list_objects_v2(Bucket="pile")
    assert "Uploads" not in store.list_multipart_uploads(Bucket="pile")


async def test_a_cancelled_export_leaves_nothing(store, monkeypatch):
    monkeypatch.setattr(s3_client, "PART_BYTES", 1 << 20)
    obj = await create_object_from_query("SELECT number AS n FROM numbers(2_000_000)")
    begun, whole = asyncio.Event(), s3_client.S3Session.request

    async def request(self, method, query=None, body=b""):
        if query and query.get("partNumber") == "2":
            begun.set()
            await asyncio.Event().wait()
        return await whole(self, method, query, body)

    monkeypatch.setattr(s3_client.S3Session, "request", request)
    task = asyncio.create_task(obj.export("s3://pile/gone.csv"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "Contents" not in store.list_objects_v2(Bucket="pile")
    assert "Uploads" not in store.list_multipart_uploads(Bucket="pile")


async def test_signatures_are_accepted_and_wrong_ones_refused(store, moto_endpoint, monkeypatch, caplog, data, admin):
    """moto checks the user and key of a signature."""
    caplog.set_level(logging.DEBUG)
    obj = await create_object_from_value([1, 2])
    iam = boto3.client("iam", endpoint_url=moto_endpoint, region_name="us-east-1")
    iam.create_user(UserName="we")
    access_key = iam.create_access_key(UserName="we")["AccessKey"]
    allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    iam.put_user_policy(UserName="we", PolicyName="all", PolicyDocument=json.dumps(allow))
    right = S3Access(
        access_key["AccessKeyId"], access_key["SecretAccessKey"], region="eu-west-1", endpoint=moto_endpoint
    )
    check_signatures(moto_endpoint, True)
    try:
        await obj.export("s3://pile/a b/ü+%.csv", s3=right)
        assert await (await create_object_from_file("s3://pile/a b/ü+%.csv", s3=right)).data() == {"value": [1, 2]}
        wrong = replace(right, secret_key=SECRET)
        with pytest.raises(IngestError, match="403 SignatureDoesNotMatch") as caught:
            await create_object_from_file("s3://pile/a b/ü+%.csv", s3=wrong)
    finally:
        check_signatures(moto_endpoint, False)
    chain = "".join(traceback.format_exception(caught.value)) + repr(wrong)
    own = "\n".join(record.getMessage() for record in caplog.records if not record.name.startswith("boto"))
    log = admin.query("SELECT query FROM system.processes").result_rows
    for secret in (SECRET, access_key["SecretAccessKey"], access_key["AccessKeyId"]):
        assert secret not in chain.replace(repr(wrong), "")
        assert secret not in own
        assert secret not in str(log)
    assert SECRET not in repr(wrong)


async def test_without_keys_requests_are_unsigned(store, monkeypatch, moto_endpoint):
    store.put_object(Bucket="pile", Key="public.csv", Body=b"a\n1\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(IngestError, match=r"403\.\nThe request was unsigned"):
        await create_object_from_file("s3://pile/public.csv")
    store.put_object_acl(Bucket="pile", Key="public.csv", ACL="public-read")
    assert await (await create_object_from_file("s3://pile/public.csv")).data() == {"a": [1]}
    assert (
        await (await create_object_from_file("s3://pile/public.csv", s3=S3Access(endpoint=moto_endpoint))).count() == 1
    )


async def test_missing_buckets_and_objects_are_reported(store):
    obj = await create_object_from_value([1])
    with pytest.raises(IngestError, match="404 NoSuchKey"):
        await create_object_from_file("s3://pile/none.csv")
    with pytest.raises(IngestError, match="404 NoSuchBucket"):
        await create_object_from_file("s3://no-such-bucket/none.csv")
    with pytest.raises(DataError, match="404 NoSuchBucket"):
        await obj.export("s3://no-such-bucket/none.csv")
    with pytest.raises(DataError, match="not the name of a bucket"):
        await obj.export("s3://x@169.254.169.254/none.csv")
    with pytest.raises(DataError, match="is not a file"):
        await obj.export("https://example.com/none.csv")


class Elsewhere:
    """A fake S3 server: returns configured responses and records requests."""

    def __init__(self):
        self.answers = []
        self.asked = []

    async def answer(self, request):
        self.asked.append(request)
        return self.answers.pop(0)


@pytest.fixture
async def elsewhere(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    server = Elsewhere()
    application = web.Application()
    application.router.add_route("*", "/{any:.*}", server.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


async def test_request_is_repeated_in_the_region_of_the_bucket(elsewhere, monkeypatch):
    whole = s3_client.S3Object.url
    urls = []

    def url(self, access):
        urls.append(whole(self, access))
        return f"{elsewhere.url}/x.csv"

    monkeypatch.setattr(s3_client.S3Object, "url", url)
    elsewhere.answers = [
        web.Response(status=400, headers={"x-amz-bucket-region": "eu-west-3"}),
        web.Response(text="a\n1\n"),
    ]
    access = S3Access("key", SECRET, TOKEN)
    obj = await create_object_from_file("s3://pile/x.csv", s3=access, allow_private=True)
    assert await obj.count() == 1
    assert [address.split(".")[2] for address in urls] == ["us-east-1", "eu-west-3"]
    assert "/eu-west-3/s3/" in elsewhere.asked[1].headers["Authorization"]
    assert elsewhere.asked[1].headers["X-Amz-Security-Token"] == TOKEN


@pytest.mark.parametrize("region", ["evil.example/", "", "a.b"])
async def test_a_redirect_is_not_followed(elsewhere, region):
    elsewhere.answers = [
        web.Response(status=307, headers={"Location": f"{elsewhere.url}/other", "x-amz-bucket-region": region})
    ]
    with pytest.raises(IngestError, match="307"):
        await create_object_from_file("s3://pile/x.csv", s3=S3Access("key", SECRET, endpoint=elsewhere.url))
    assert len(elsewhere.asked) == 1


async def test_private_address_requires_an_explicit_endpoint(elsewhere, monkeypatch):
    monkeypatch.setattr(s3_client.S3Object, "url", lambda self, access: f"{elsewhere.url}/x.csv")
    with pytest.raises(ForbiddenAddressError):
        await create_object_from_file("s3://pile/x.csv")
    assert elsewhere.asked == []


async def test_request_to_a_busy_store_is_retried(elsewhere, monkeypatch):
    async def at_once(seconds):
        assert seconds <= 5

    monkeypatch.setattr(s3_client.asyncio, "sleep", at_once)
    access = S3Access("key", SECRET, endpoint=elsewhere.url)
    obj = await create_object_from_value([1])
    elsewhere.answers = [web.Response(status=503), web.Response(status=500), web.Response()]
    await obj.export("s3://pile/x.csv", s3=access)
    elsewhere.answers = [web.Response(status=503, text="<Code>SlowDown</Code>") for _ in range(9)]
    with pytest.raises(DataError, match="503 SlowDown"):
        await obj.export("s3://pile/x.csv", s3=access)
    with pytest.raises(IngestError, match="503 SlowDown"):
        await create_object_from_file("s3://pile/x.csv", s3=access, retries=1)


async def test_error_hides_the_presigned_url(elsewhere):
    elsewhere.answers = [web.Response(status=403)]
    with pytest.raises(IngestError) as caught:
        await create_object_from_file(f"{elsewhere.url}/x.csv?X-Amz-Signature={SECRET}", allow_private=True)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
