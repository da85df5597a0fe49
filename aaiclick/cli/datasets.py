"""`aaiclick datasets`: list, show, query and rematerialize datasets."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

import click

from aaiclick.api.data_tests import DataTestResult
from aaiclick.api.datasets import DatasetDetail, RegisterVersionRequest
from aaiclick.api.field_types import parse_fields
from aaiclick.api.freshness import DatasetFreshness
from aaiclick.cli.api_keys import org_option
from aaiclick.cli.database import error_headline, format_duration, format_time
from aaiclick.cli.local_and_remote_operations import open_operations
from aaiclick.cli.output import (
    Row,
    output_option,
    print_message,
    print_models,
    print_record,
    print_records,
    print_rows,
    select_fields,
)
from aaiclick.cli.param_types import POSITION, Number
from aaiclick.cli.remote import PAGE_SIZE
from aaiclick.errors import EXIT_FAILED
from aaiclick.store.enums import JobStatus

C = TypeVar("C", bound=Callable[..., Any])


def reader_options(function: C) -> C:
    """Add `--org` and `--as` to a command that reads datasets."""
    as_option = click.option(
        "--as",
        "user",
        default=None,
        metavar="USER",
        help="Read with the roles of this user, by its external id [default: read everything].",
    )
    return org_option(as_option(function))


@click.group()
def datasets() -> None:
    """List, show, query and rematerialize datasets.

    \b
    aaiclick datasets ls
    aaiclick datasets query "SELECT count() FROM orders"
    """


@datasets.command("ls")
@reader_options
@output_option
def list_datasets(org: str, user: str | None, output: str) -> None:
    """List datasets."""
    with open_operations(org, reads_as=user) as operations:
        rows = [dataset.model_dump() for dataset in operations.list_datasets()]
    print_rows(rows, output, _table_row, _json_record, empty_message="No readable datasets found.")


@datasets.command("show")
@click.argument("name")
@reader_options
@output_option
def show_dataset(name: str, org: str, user: str | None, output: str) -> None:
    """Show a dataset: columns, generations and the tasks that produced it."""
    with open_operations(org, reads_as=user) as operations:
        dataset = operations.get_dataset(name)
    if output == "json":
        print_record(_detailed_json(dataset.model_dump()), output)
    else:
        print_records(_detailed_rows(dataset), output)


def _detailed_json(dataset: Row) -> Row:
    return _json_record(dataset) | {
        "columns": dataset["columns"],
        "generations": [select_fields(item, item) for item in dataset["generations"]],
        "runs": [select_fields(item, item) for item in dataset["runs"]],
    }


def _detailed_rows(dataset: DatasetDetail) -> list[Row]:
    """Build one table of a dataset's columns, generations and runs."""
    lines = [_detail_row("dataset", dataset.name, f"produced by {dataset.dag}.{dataset.job}")]
    if dataset.columns:
        lines.append(_detail_row("rows", dataset.rows, f"updated {format_time(dataset.updated_at)}"))
        lines += [_detail_row("column", column.name, column.type) for column in dataset.columns]
    for generation in dataset.generations:
        state = "serving" if generation.serving else "not serving"
        created, updated = format_time(generation.created_at), format_time(generation.updated_at) or "never"
        schema = (generation.schema_hash or "unknown")[:12]
        detail = f"{state}; created {created}, updated {updated}; schema {schema}"
        lines.append(_detail_row("generation", str(generation.id)[:8], detail))
    for task in dataset.runs:
        took = format_duration(task.started_at, task.completed_at)
        lines.append(_detail_row("task", task.id, f"{task.status} {took} {error_headline(task.error)}".strip()))
    return lines


@datasets.command("lineage")
@click.argument("name")
@click.option("--down", is_flag=True, help="Downstream instead of upstream lineage.")
@click.option("--columns", is_flag=True, help="Lineage of columns.")
@reader_options
@output_option
def show_lineage(name: str, down: bool, columns: bool, org: str, user: str | None, output: str) -> None:
    """Show the upstream or downstream lineage of a dataset."""
    with open_operations(org, reads_as=user) as operations:
        graph = operations.get_lineage(name, "down" if down else "up")
    print_rows([edge.model_dump() for edge in (graph.columns if columns else graph.edges)], output, _edge_row, dict)


@datasets.command("tests")
@click.argument("name", required=False)
@click.option("--failed", is_flag=True, help="Only tests that did not pass.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Maximum number of rows.")
@reader_options
@output_option
def list_data_tests(name: str | None, failed: bool, limit: int, org: str, user: str | None, output: str) -> None:
    """Show the latest result of every data test, or the history of those of a dataset."""
    with open_operations(org, reads_as=user) as operations:
        listing = operations.list_data_tests(dataset=name, failed=failed, limit=min(limit, PAGE_SIZE))
        rows = list(islice(listing, limit))
    print_models(rows, output, _test_row, empty_message="No results of data tests.")


@datasets.command("freshness")
@click.argument("name", required=False)
@click.option("--late", is_flag=True, help="Only datasets that are or will be late.")
@reader_options
@output_option
def list_freshness(name: str | None, late: bool, org: str, user: str | None, output: str) -> None:
    """Show when datasets with a freshness policy are due, and why some are late."""
    with open_operations(org, reads_as=user) as operations:
        rows = operations.list_freshness(dataset=name, late=late)
    print_models(rows, output, _freshness_row, empty_message="No dataset with a freshness policy.")


@datasets.command("query")
@click.argument("sql")
@click.option("--max-rows", type=click.IntRange(1, 10_000_000), default=10_000, show_default=True,
              help="Fail if the result has more rows.")  # fmt: skip
@click.option("--seconds", "time_limit", type=Number(0.1), default=30.0, show_default=True,
              help="Fail if the query takes longer.")  # fmt: skip
@reader_options
@output_option
def run_query(sql: str, max_rows: int, time_limit: float, org: str, user: str | None, output: str) -> None:
    """Run one SELECT over datasets by their names.

    \b
    aaiclick datasets query "SELECT day, sum(euros) FROM orders GROUP BY day" -o json
    """
    with open_operations(org, reads_as=user) as operations:
        result = operations.query_datasets(sql, max_rows=max_rows, seconds=time_limit)
    print_records(result.rows, output, empty_message="No rows.")


@datasets.command("readers")
@click.argument("name")
@click.argument("roles", nargs=-1)
@org_option
def set_readers(name: str, roles: tuple[str, ...], org: str) -> None:
    """Set the roles that may read a dataset; without roles, only admins may."""
    with open_operations(org) as operations:
        operations.set_dataset_readers(name, roles)
    print_message(f"Readers of {name}: {', '.join(sorted(set(roles))) or 'admins only'}.")


@datasets.command("rematerialize")
@click.argument("name")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the job has finished.")
@org_option
@output_option
def rematerialize_dataset(name: str, wait: bool, org: str, output: str) -> int:
    """Rebuild a dataset and everything downstream. Readers see the old rows until the new ones are complete."""
    with open_operations(org) as operations:
        job_id = operations.rematerialize_dataset(name).id
        job = (
            importlib.import_module("aaiclick.cli.watch").wait_for_job(operations, job_id)
            if wait
            else operations.get_job(job_id)
        )
    print_record({"job": str(job_id), "status": job.status}, output)
    if wait:
        importlib.import_module("aaiclick.cli.failure_report").report_failure(job)
    return EXIT_FAILED if job.status in (JobStatus.FAILED, JobStatus.CANCELLED) else 0


@datasets.command("register")
@click.argument("name")
@click.option(
    "--range",
    "bounds",
    nargs=2,
    type=POSITION,
    default=(None, None),
    metavar="FIRST LAST",
    help="First and last position.",
)
@click.option("--location", default=None, metavar="PREFIX", help="Prefix and glob of the version's files, if separate.")
@org_option
@output_option
def register_version(
    name: str, bounds: tuple[int | None, int | None], location: str | None, org: str, output: str
) -> None:
    """Register a version of a dataset by its range; repeating it has no effect."""
    fields = {"range_start": bounds[0], "range_end": bounds[1], "storage_location": location}
    with open_operations(org) as operations:
        registered = operations.register_dataset_version(name, parse_fields(RegisterVersionRequest, fields))
    print_record(registered.model_dump(mode="json"), output)


def _json_record(row: Row) -> Row:
    return select_fields(row, ("name", "dag", "job", "rows", "updated_at", "read_roles"))


def _table_row(row: Row) -> Row:
    return {
        "name": row["name"],
        "produced by": f"{row['dag']}.{row['job']}",
        "rows": row["rows"],
        "updated": format_time(row["updated_at"]),
        "readers": ", ".join(row["read_roles"]),
    }


def _test_row(result: DataTestResult) -> Row:
    return {
        "dataset": result.dataset or result.subject,
        "partition": result.partition_key,
        "test": result.test,
        "outcome": result.outcome,
        "detail": result.message,
        "tested": format_time(result.tested_at),
        "task": str(result.task_id),
        "failing rows": result.sample_table or "",
    }


def _freshness_row(row: DatasetFreshness) -> Row:
    return {
        "dataset": row.dataset,
        "policy": row.policy,
        "state": row.state,
        "updated": format_time(row.updated_at),
        "due": format_time(row.due_at),
        "expected": format_time(row.expected_at),
        "because": "; ".join(row.causes),
    }


def _edge_row(row: Row) -> Row:
    """Rename source and target of a lineage edge for the table."""
    return {{"source": "from", "target": "to"}.get(name, name): value for name, value in row.items()}


def _detail_row(kind_name: str, name: object, detail: str) -> dict[str, object]:
    return {"what": kind_name, "name": name, "detail": detail}
