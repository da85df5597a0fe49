"""Commands and Python blocks of pages without a test of their own run as written, each page on databases of its own."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from aaiclick.cli.main import cli
from aaiclick.data import (
    DataContext,
    S3Access,
    View,
    create_object_from_file,
    create_object_from_value,
    open_reference,
)
from aaiclick.orchestration import OrchContext, create_job, create_task, run_job_test
from aaiclick.settings import get_settings
from examples.map_prices import prices
from tests.documentation import BLOCKS, ROOT, Block, read_command
from tests.integration.catalog.test_pages_with_examples import run

TASK_MODULES = "trips,shop,prices,catalogue,reports,mail,customers_source,regions_job,shop_functions,orders_jobs,tests"
MAIL = """
from aaiclick.orchestration import task

@task(type="mail:digest")
def digest(list: int = 0) -> int:
    return list
"""
SHOP_FUNCTIONS = """
def load_customers():
    return [{"id": "ann"}]

def load_orders():
    return [{"order_id": 1, "customer": "ann", "euros": 5.0, "day": "2026-01-01"}]
"""
SALES = """
name: sales_files
jobs:
  - name: load
    activation: source
    operator: parquet_files
    source: {kind: manual}
    outputs:
      - name: sales
        storage: {kind: parquet, prefix: "PREFIX/sales/", glob: "*/*.parquet"}
publish: [sales]
"""
WHOLE_DAG = """
name: part
jobs:
  - name: load
    activation: source
    operator: python
    source: {kind: manual}
    config: {function: "shop_functions:load_orders"}
    PART
"""


async def fail() -> None:
    raise ValueError("no rows")


def select_blocks(page: str, language: str) -> list[Block]:
    return [block for block in BLOCKS if (block.page, block.language, block.marker) == (page, language, None)]


@pytest.fixture
def directory(aaiclick_env, tmp_path, monkeypatch) -> Iterator[Path]:
    """Current directory with the files of the examples; modules imported from it are forgotten."""
    monkeypatch.setenv("AAICLICK_TASK_MODULES", TASK_MODULES)
    for name, value in {"LOG_DIR": "logs", "HOME": "home", "PARQUET_PREFIXES": "lake/"}.items():
        monkeypatch.setenv(f"AAICLICK_{name}", f"{tmp_path}/{value}")
    get_settings.cache_clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "examples" / "dags").mkdir(parents=True)
    for file in (ROOT / "examples" / "dags").iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "token.txt").write_text("sesame\n")
    (tmp_path / "mail.py").write_text(MAIL)
    (tmp_path / "shop_functions.py").write_text(SHOP_FUNCTIONS)
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def write_files(directory: Path, *pages: str) -> None:
    for block in BLOCKS:
        if block.page in pages and block.file and block.language in ("python", "yaml"):
            with (directory / block.file).open("a") as file:
                file.write(block.text + "\n\n")


async def submit_failing_job() -> tuple[str, str]:
    """A failed job and its dead letter."""
    async with OrchContext():
        task = create_task(fail, {}, retries=0)
        failed = await create_job("failing", task)
        await asyncio.to_thread(run_job_test, failed)
    return str(failed.id), str(task.id)


async def submit_waiting_job() -> str:
    async with OrchContext():
        task = create_task(fail, {})
        await create_job("waiting", task)
    return str(task.id)


# --- scenarios: what a page assumes, and replacements of its placeholders --------------------------------------------


def prepare_nothing(_: Path) -> dict[str, str]:
    return {}


def prepare_first_steps(directory: Path) -> dict[str, str]:
    write_files(directory, "first-steps.md")
    return {"logs ID": f"logs {asyncio.run(submit_failing_job())[1]}"}


def prepare_orders(directory: Path) -> dict[str, str]:
    """A first version of the DAG, so that there is one to roll back to; and what the page of DAGs needs."""
    text = (directory / "orders.yaml").read_text()
    (directory / "orders.yaml").write_text(text.replace("orders: 200", "orders: 100"))
    run("dag", "deploy", "orders.yaml")
    (directory / "orders.yaml").write_text(text)
    write_files(directory, "README.md")
    return {"cd examples/dags && ": ""}


def prepare_dags(directory: Path) -> dict[str, str]:
    prepare_orders(directory)
    (directory / "lake" / "sales" / "1000").mkdir(parents=True)
    (directory / "sales.yaml").write_text(SALES.replace("PREFIX", f"{directory}/lake"))
    run("dag", "deploy", "sales.yaml")
    (directory / "old.yaml").write_text(SALES.replace("PREFIX", f"{directory}/lake/old").replace("sales", "old"))
    run("dag", "deploy", "old.yaml")
    run("role", "create", "finance")
    return {
        "s3://lake": f"{directory}/lake",
        "rm orders ": "rm old_files --yes ",
        "pause orders": "pause old_files",
        "--to 2026-01-31": "--to 2026-01-02 --dry-run",  # the runs would need a worker: test_backfill.py has one
        "--dry-run --dry-run": "--dry-run",
    }


def prepare_jobs(_: Path) -> dict[str, str]:
    job_id, task_id = asyncio.run(submit_failing_job())
    waiting = asyncio.run(submit_waiting_job())
    return {
        "jobs retry ID": f"jobs retry {job_id}", "jobs rerun ID": f"jobs rerun {job_id}",
        "tasks cancel ID": f"tasks cancel {waiting}", "ID": task_id,
    }  # fmt: skip


def prepare_schedules(directory: Path) -> dict[str, str]:
    write_files(directory, "schedules.md")
    return {}


def prepare_freshness(directory: Path) -> dict[str, str]:
    [text] = [block.text for block in BLOCKS if (block.page, block.language) == ("freshness.md", "yaml")]
    (directory / "fresh.yaml").write_text(text)
    run("dag", "deploy", "fresh.yaml")
    return {}


def prepare_data_tests(directory: Path) -> dict[str, str]:
    [text] = [block.text for block in BLOCKS if (block.page, block.language) == ("data-tests.md", "yaml")]
    (directory / "tested.yaml").write_text(text)
    run("dag", "deploy", "tested.yaml")
    asyncio.run(create_named_object())
    return {"OBJECT": "failing_rows"}


async def create_named_object() -> None:
    async with DataContext():
        await create_object_from_value({"id": [1]}, name="failing_rows")


def prepare_jobs_or_dags(directory: Path) -> dict[str, str]:
    write_files(directory, "jobs-or-dags.md")
    return {}


def prepare_observability(directory: Path) -> dict[str, str]:
    return {"/etc/prometheus": str(directory)}


def prepare_cli(directory: Path) -> dict[str, str]:
    write_files(directory, "README.md")
    run("org", "create", "acme")
    return {}


SCENARIOS: dict[str, Callable[[Path], dict[str, str]]] = {
    "README.md": prepare_orders, "cli.md": prepare_cli, "dags.md": prepare_dags, "data-tests.md": prepare_data_tests,
    "first-steps.md": prepare_first_steps, "freshness.md": prepare_freshness, "jobs.md": prepare_jobs,
    "jobs-or-dags.md": prepare_jobs_or_dags, "observability.md": prepare_observability,
    "organisations.md": prepare_nothing, "schedules.md": prepare_schedules,
}  # fmt: skip


@pytest.mark.parametrize("page", SCENARIOS)
def test_commands_of_the_page_run(directory, page, monkeypatch) -> None:
    replacements = SCENARIOS[page](directory)
    for block in select_blocks(page, "sh"):
        for line in block.lines:
            for old, new in replacements.items():
                line = line.replace(old, new)
            run_line(line)


def run_line(line: str) -> str | None:
    """Run a call of `aaiclick` in this process; jobs run in it too."""
    command = read_command(line)
    if command is None or command.runs_until_stopped:
        return None
    arguments = [*command.arguments, *(["--debug"] if command.arguments[0] == "run" else [])]
    text = Path(command.stdin_file).read_text() if command.stdin_file else command.stdin_text
    result = CliRunner().invoke(cli, arguments, text, standalone_mode=False)
    assert result.exception is None, (line, result.exception, result.output)
    assert not result.return_value, (line, result.output)
    if command.stdout_file:
        assert result.stdout.strip(), line
        Path(command.stdout_file).write_text(result.stdout)
    return result.stdout


async def evaluate(block: Block, names: dict[str, object]) -> None:
    """Run a block with top-level await."""
    code = compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if (running := eval(code, names)) is not None:
        await running


async def test_blocks_about_data_run(directory, capsys, monkeypatch, moto_endpoint) -> None:
    first, stored, synchronous = select_blocks("data.md", "python")
    for block in (first, synchronous):
        await asyncio.to_thread(exec, compile(block.text, str(block), "exec"), {})
    expected = re.search(r"print\(.*# (.*)", first.text)[1]
    assert capsys.readouterr().out.splitlines()[0] == expected
    keys = {
        "ACCESS_KEY_ID": "me",
        "SECRET_ACCESS_KEY": "secret",
        "REGION": "us-east-1",
        "ENDPOINT_URL_S3": moto_endpoint,
    }
    for name, value in keys.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    await asyncio.to_thread(httpx.put, f"{moto_endpoint}/pile")
    [files] = select_blocks("files.md", "python")
    async with DataContext():
        sales = await create_object_from_value({"shop": ["n", "s"], "price": [2.5, 3.0]})
        names = {"sales": sales, "create_object_from_file": create_object_from_file, "S3Access": S3Access}
        await evaluate(
            replace(stored, text=stored.text.replace("http://minio:9000", moto_endpoint).replace("…", "secret")), names
        )
        assert await names["again"].data() == await sales.data()
        (directory / "lake" / "sales" / "year=2024").mkdir(parents=True)
        for name in (
            "sales.parquet",
            "lake/sales/year=2024/a.parquet",
            "a.csv",
            "b.csv.gz",
            "s3://pile/sales/a.parquet",
        ):
            await sales.export(name)
        (directory / "odd.csv").write_bytes("shop;price\nDune;2,5\nNA;3,0\n".encode("latin-1"))
        await evaluate(files, names)
        assert await names["sales"].data() == {"shop": ["Dune", None], "price": [2.5, 3.0]}


OPERATORS = """
import asyncio
from aaiclick.data import Object, create_object_from_value
from aaiclick.orchestration import job, task

visited = []

async def fetch_links(page):
    visited.append(page)
    return [page + "/a"] if len(page) < 5 else []

async def cities(trips):
    return ["Bari", "Cork"]

@task
async def mean_fare(trips: Object, city: str) -> float:
    return float(len(city))

@task
async def load() -> Object:
    return await create_object_from_value({"price": [1.0, 2.0, 4.0]})

@task
async def report(gross: Object, extremes: Object) -> list[float]:
    return (await extremes.data())["gross"]

def find_extremes(rows: "pa.Table") -> "pa.Table":
    return rows.slice(0, 1)
"""


async def test_blocks_about_operators_run(directory) -> None:
    explore, per_city, prices = select_blocks("operators.md", "python")
    (directory / "operators_page.py").write_text("\n\n".join((OPERATORS, explore.text, per_city.text, prices.text)))
    page = importlib.import_module("operators_page")
    async with OrchContext():
        jobs = [
            await create_job("crawl", create_task(page.explore, {"page": "/a"})),
            await create_job("cities", page.per_city(page.load())),
            await page.prices(),
        ]
        for submitted in jobs:
            ended = await asyncio.to_thread(run_job_test, submitted)
            assert ended.status == "COMPLETED", (ended.error, await submitted.logs())
    assert page.visited == ["/a", "/a/a", "/a/a/a"]


async def test_example_of_operators_runs(aaiclick_env) -> None:
    async with OrchContext():
        submitted = await prices(rows=20_000)
        assert (await asyncio.to_thread(run_job_test, submitted)).status == "COMPLETED"


def test_dag_files_of_the_page_are_deployed(directory) -> None:
    """Blocks that are part of a file are inserted into one."""
    for name in ("shop-token", "shop-signing"):
        run_line(f"aaiclick secrets set {name} < token.txt")
    (directory / "shop.py").write_text("def receive(event):\n    return [event['payload']]\n")
    blocks = select_blocks("dags.md", "yaml")
    for block in blocks:
        text = (
            block.text
            if block.text.startswith("name:")
            else WHOLE_DAG.replace("PART", block.text.replace("\n", "\n    "))
        )
        (directory / "dag.yaml").write_text(text.replace("s3://lake", f"{directory}/lake"))
        run_line("aaiclick dag deploy dag.yaml")
    assert len(blocks) >= 5


async def test_json_of_views_is_what_they_are_serialised_to(directory) -> None:
    [block] = select_blocks("data.md", "json")
    documented = [json.loads(line) for line in block.text.splitlines()]
    async with DataContext():
        obj = await create_object_from_value([50, 200], name="t123")
        views = [obj, View(obj, 0, 10_000, where="value > 100")]
        assert [{**view.to_dict(), "table_id": "t123"} for view in views] == documented
        for fields, values in zip(documented, ([50, 200], [200]), strict=True):
            assert await (await open_reference(fields | {"table_id": obj.table_id})).data() == values


async def test_block_about_emitted_events_defines_a_source() -> None:
    [block] = select_blocks("dags.md", "python")
    names: dict[str, object] = {}
    exec(block.text, names)
    assert asyncio.iscoroutinefunction(names["follow"])


async def test_database_source_reads_rows(directory, monkeypatch) -> None:
    write_files(directory, "connectors.md")
    with sqlite3.connect(directory / "customers.db") as database:
        database.executescript(
            "CREATE TABLE customers (id INTEGER, name TEXT); INSERT INTO customers VALUES (1, 'Ada')"
        )
    run_secret = ["secrets", "set", "customers-db"]
    await asyncio.to_thread(CliRunner().invoke, cli, run_secret, str(directory / "customers.db"))
    source = importlib.import_module("customers_source")
    async with OrchContext():
        job = await create_job("customers", create_task(source.load_customers, {}))
        assert (await asyncio.to_thread(run_job_test, job)).status == "COMPLETED"
    await asyncio.to_thread(run, "dag", "validate", "rates.yaml")
