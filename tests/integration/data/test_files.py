"""Import of files and URLs, export to files."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from aiohttp import web

from aaiclick.data import col, create_object_from_file, create_object_from_query, create_object_from_value, list_objects
from aaiclick.data.errors import ColumnNotFoundError, ForbiddenAddressError, IngestError, QueryError
from aaiclick.data.io import formats

pytestmark = pytest.mark.usefixtures("data")

VALUES = {
    "n": [1, None, -(2**63)],
    "x": [1.5, None, -2.0],
    "s": ["a,b", 'quote " and \n line', None],
    "l": [[1, 2], [], [3]],
}
FORMATS = ["csv", "tsv", "json", "jsonl", "parquet", "orc", "avro", "arrow"]


@pytest.mark.parametrize("name", FORMATS)
async def test_export_and_import_round_trip(tmp_path, name):
    obj = await create_object_from_value(VALUES)
    path = await obj.export(tmp_path / f"odd name'; DROP.{name}")
    again = await create_object_from_file(path)
    assert await again.data() == VALUES
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", ["gz", "zst", "xz", "bz2", "lz4"])
async def test_compressed(tmp_path, suffix):
    obj = await create_object_from_value(VALUES)
    path = await obj.export(tmp_path / f"data.jsonl.{suffix}")
    assert await (await create_object_from_file(path)).data() == VALUES


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gz", "bz2", "xz"])
async def test_a_decompression_bomb_is_stopped(tmp_path, data, monkeypatch, pack):
    """One bomb that would fill the memory, and one that would fill ClickHouse's disk."""
    monkeypatch.setattr(formats, "EXPANSION_FREE_BYTES", 2 << 20)
    suffix = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz"}[pack]
    path = tmp_path / f"bomb.csv.{suffix}"
    path.write_bytes(pack(b"a\n" + b"1\n" * (4 << 20)))
    with pytest.raises(IngestError, match="expands more than 250-fold"):
        await create_object_from_file(path)
    rows = await data.client.read_text("SELECT count() AS n FROM system.tables WHERE database = currentDatabase()")
    assert rows.to_pylist() == [{"n": 0}]


async def test_order_is_kept_in_large_files(tmp_path):
    numbers = await create_object_from_value(list(range(400_000)))
    for name in ("csv", "parquet", "jsonl.gz"):
        path = await numbers.export(tmp_path / f"n.{name}")
        again = await create_object_from_file(path)
        assert await again.count() == 400_000
        assert await (again["value"] == numbers).all().data() is True


async def test_types_are_inferred_and_overridden(tmp_path):
    path = tmp_path / "typed.csv"
    path.write_text("id,day,at,price,flag\n007,2024-02-29,2024-02-29 01:02:03,1.50,true\n008,,,,\n")
    inferred = await create_object_from_file(path)
    assert {name: dtype.as_required().name for name, dtype in inferred.schema.items()} == {
        "id": "Int64", "day": "Date32", "at": "DateTime64", "price": "Float64", "flag": "Bool",
    }  # fmt: skip
    schema = {"id": "String", "price": "Nullable(Decimal(18, 2))", "at": "Nullable(DateTime64(3, 'UTC'))"}
    typed = await create_object_from_file(path, schema=schema)
    assert await typed.data() == {
        "id": ["007", "008"], "day": [date(2024, 2, 29), None], "at": [datetime(2024, 2, 29, 1, 2, 3,
        tzinfo=UTC), None],
        "price": [Decimal("1.50"), None], "flag": [True, None],
    }  # fmt: skip
    with pytest.raises(ColumnNotFoundError, match="Did you mean 'price'"):
        await create_object_from_file(path, schema={"prize": "String"})


async def test_a_file_can_get_a_name_and_a_format(tmp_path):
    path = tmp_path / "rows.data"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    await create_object_from_file(path, format="jsonl", name="from a file", progress=True)
    assert await list_objects() == ["from a file"]


async def test_bad_files(tmp_path, data):
    (tmp_path / "bad.csv").write_text('a,b\n1,2\n"unclosed\n')
    (tmp_path / "late.csv").write_text("a,b\n" + "1,2\n" * 60_000 + "one,2\n")
    (tmp_path / "bad.parquet").write_text("not parquet")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "what.xyz").write_text("")
    for name, message in {
        "bad.csv": "could not be read as csv",
        "late.csv": "row 60001: Cannot parse input",
        "bad.parquet": "could not be read as parquet",
        "empty.csv": "empty",
        "missing.csv": "No such file",
        "what.xyz": "format",
    }.items():
        with pytest.raises(IngestError, match=message):
            await create_object_from_file(tmp_path / name)
    rows = await data.client.read_text("SELECT count() AS n FROM system.tables WHERE database = currentDatabase()")
    assert rows.to_pylist() == [{"n": 0}]


@pytest.mark.parametrize("name", [*FORMATS, "csv.gz", "jsonl.zst"])
async def test_late_export_failure_reports_the_reason_and_leaves_no_file(tmp_path, name):
    texts = await create_object_from_query(
        "SELECT if(number = 399999, 'forty', toString(number)) AS s FROM numbers(400000) ORDER BY number"
    )
    with pytest.raises(QueryError, match="Cannot parse string 'forty' as Int64") as caught:
        await texts.select(n=col("s").cast("Int64")).export(tmp_path / f"n.{name}")
    assert caught.value.code == 6
    assert list(tmp_path.iterdir()) == []


async def test_late_query_failure_reports_the_reason():
    texts = await create_object_from_query(
        "SELECT if(number = 2999999, 'million', toString(number)) AS s FROM numbers(3000000) ORDER BY number"
    )
    numbers = texts.select(n=col("s").cast("Int64"))
    with pytest.raises(QueryError, match="Cannot parse string 'million' as Int64"):
        await numbers.to_arrow()
    with pytest.raises(QueryError, match="Cannot parse string 'million' as Int64"):
        async for _ in numbers.iter_batches():
            pass


class Site:
    """A small web server that counts its requests."""

    def __init__(self):
        self.asked = 0
        self.busy = 0

    async def data(self, request):
        self.asked += 1
        if self.busy:
            self.busy -= 1
            return web.Response(status=503)
        return web.Response(body=gzip.compress(b"a,b\n1,x\n2,y\n"))

    async def redirect(self, request):
        raise web.HTTPFound(request.query["to"])

    async def secret(self, request):
        self.asked += 1
        return web.Response(text="a\nsecret\n")


@pytest.fixture
async def site():
    served = Site()
    application = web.Application()
    application.router.add_get("/data.csv.gz", served.data)
    application.router.add_get("/go.csv", served.redirect)
    application.router.add_get("/secret.csv", served.secret)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.port = runner.addresses[0][1]
    served.url = f"http://127.0.0.1:{served.port}"
    yield served
    await runner.cleanup()


async def test_a_url(site):
    obj = await create_object_from_file(f"{site.url}/data.csv.gz?token=x", allow_private=True)
    assert await obj.data() == {"a": [1, 2], "b": ["x", "y"]}


async def test_request_to_a_busy_server_is_retried(site, monkeypatch):
    async def at_once(seconds):
        assert seconds <= 5

    monkeypatch.setattr("aaiclick.data.io.ingest.asyncio.sleep", at_once)
    site.busy = 2
    obj = await create_object_from_file(f"{site.url}/data.csv.gz", allow_private=True)
    assert await obj.count() == 2
    assert site.asked == 3
    site.busy = 99
    with pytest.raises(IngestError, match="503"):
        await create_object_from_file(f"{site.url}/data.csv.gz", allow_private=True)


async def test_private_addresses_are_refused(site):
    for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "127.1",
                 "0x7f.0.0.1", "\u246027.0.0.1", "127\u30020\u30020\u30021"):  # fmt: skip
        with pytest.raises((ForbiddenAddressError, IngestError)):
            await create_object_from_file(f"http://{host}:{site.port}/secret.csv", retries=0)
    for url in ("http://169.254.169.254/x.csv", "http://10.0.0.1/x.csv", "http://[fd00::1]/x.csv", "http://192.168.1.1/x.csv",
                "file:///etc/passwd.csv", "gopher://x/y.csv", "ftp://example.com/x.csv",
                "http://user:pw@8.8.8.8/x.csv"):  # fmt: skip
        with pytest.raises(ForbiddenAddressError):
            await create_object_from_file(url, retries=0)
    assert site.asked == 0


async def test_a_redirect_into_the_private_network_is_refused(site, monkeypatch):
    from aaiclick.data.io import ssrf

    check = ssrf.check_address
    monkeypatch.setattr(
        ssrf, "check_address", lambda address, host: None if host == "127.0.0.1" else check(address, host)
    )
    with pytest.raises(ForbiddenAddressError, match=r"169\.254"):
        await create_object_from_file(f"{site.url}/go.csv?to=http://169.254.169.254/x.csv", retries=0)


async def test_a_missing_page_is_not_retried(site):
    with pytest.raises(IngestError, match="404"):
        await create_object_from_file(f"{site.url}/nothing.csv", allow_private=True)


async def test_concurrent_reads(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    objects = await asyncio.gather(*(create_object_from_file(tmp_path / "a.csv") for _ in range(5)))
    assert [await obj.data() for obj in objects] == [{"a": [1]}] * 5
