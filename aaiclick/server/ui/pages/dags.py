"""DAG pages: list, graph, versions, runs and rollback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from aaiclick.catalog import sql_yaml_analysis
from aaiclick.catalog.backfill import can_backfill
from aaiclick.catalog.dags.diff_format import diff_lines
from aaiclick.catalog.dataset_visibility import may_read_yaml, redact_jobs
from aaiclick.catalog.deploy import find_previous_version
from aaiclick.catalog.errors import AnalysisLimitError
from aaiclick.operations import dags as operations
from aaiclick.operations.actor import Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.routing import PageNotFoundError, PageRequest, Pages
from aaiclick.server.ui.svg.dag_graph import DagDrawing, DagNode, draw_dag
from aaiclick.server.ui.template_filters import definition_class
from aaiclick.store.catalog import dag_versions
from aaiclick.store.catalog.dag_versions import VersionText
from aaiclick.store.ui import dag_queries

if TYPE_CHECKING:
    from aaiclick.store.postgres_connections import Connection

pages = Pages()

MAX_RUNS = 60
MAX_ROWS = 100


@pages.get("/dags", Permission.READER)
async def list_dags(page: PageRequest) -> Response:
    async with tenant_connection(page.call) as connection:
        dags = await dag_queries.list_dags(connection, page.caller.org_id, limit=MAX_ROWS + 1, offset=page.offset)
        failed = await _failed_deploys(page, connection, None)
    return page.render("dags.html", dags=dags[:MAX_ROWS], more=len(dags) > MAX_ROWS, failed_deploys=failed)


async def _failed_deploys(page: PageRequest, connection: Connection, name: str | None) -> Sequence[Any]:
    rows = await dag_queries.list_failed_deploys(connection, page.caller.org_id, name)
    return await redact_jobs(connection, await dataset_reader(connection, page.caller), rows) if rows else rows


@pages.get("/dags/{name}", Permission.READER)
async def show_dag(page: PageRequest) -> Response:
    async with tenant_connection(page.call) as connection:
        choice = await _load_version(page, connection)
        nodes = await dag_queries.list_version_definitions(connection, choice["chosen"].id)
        newest = [row.id for row in choice["versions"][:50]]
        runs = await dag_queries.list_dag_runs(connection, page.caller.org_id, newest, MAX_RUNS)
        failed = await _failed_deploys(page, connection, choice["name"])

    def render_dag() -> Response:
        return page.render(
            "dag.html",
            **choice,
            flow=_draw_definitions(nodes),
            definitions=nodes,
            runs=runs,
            failed_deploys=failed,
            sources=[row["name"] for row in nodes if row["source"] and describe_source(row["source"]) != "always_on"],
            can_backfill=any(can_backfill(row) for row in nodes),
        )

    return await asyncio.to_thread(render_dag)  # the layout of a large DAG is slow


async def _load_version(page: PageRequest, connection: Connection) -> dict[str, Any]:
    """Load the requested version (default: the serving one) and its diff against the serving one."""
    name, org = str(page.request.path_params["name"]), page.caller.org_id
    versions = await dag_versions.list_versions(connection, org, name)
    serving = next((row for row in versions if row.serving), None)
    if serving is None:
        raise PageNotFoundError(f"There is no DAG {name!r:.60}.", remedy="Deploy one with 'aaiclick dag deploy FILE'.")
    chosen = next((row for row in versions if row.yaml_hash == page.query_param("version")), serving)
    shown = await dag_versions.find_version(connection, org, name, chosen.id)
    current = await dag_versions.find_version(connection, org, name)
    reader = await dataset_reader(connection, page.caller)
    readable = await may_read_yaml(connection, reader, shown)
    both = readable and await may_read_yaml(connection, reader, current)
    return {
        "name": name, "versions": versions, "chosen": chosen, "serving": serving,
        "before": find_previous_version(versions),
        "yaml": shown.yaml if shown and readable else None,
        "difference": await _diff_versions(current, shown) if both and chosen.id != serving.id else [],
    }  # fmt: skip


def _draw_definitions(definitions: list[Any]) -> DagDrawing:
    makers = {dataset: row["name"] for row in definitions for dataset in row["output_datasets"] or ()}
    nodes = {
        row["name"]: DagNode(row["name"], _describe_definition(row), definition_class(row["status"]))
        for row in definitions
    }
    return draw_dag(
        nodes,
        [
            (makers[dataset], row["name"])
            for row in definitions
            for dataset in row["input_datasets"] or ()
            if dataset in makers
        ],
    )


def _describe_definition(row: Any) -> str:
    if not row["source"]:
        return str(row["operator"])
    source = json.loads(row["source"])
    return f"{row['operator']} · {source.get('schedule') or source.get('kind')}"


def describe_source(text: str) -> str:
    """Describe what starts a source: its cron schedule or its kind."""
    source = json.loads(text)
    if source.get("kind") == "cron":
        return f"{source.get('schedule')} {source.get('timezone') or ''}".strip()
    return str(source.get("kind"))


async def _diff_versions(current: VersionText | None, other: VersionText | None) -> list[tuple[str, str]]:
    """Return (css class, line) of the diff between the serving version and another one."""
    if current is None or other is None:
        return []
    try:
        lines = await sql_yaml_analysis.run_analysis(diff_lines, current.yaml, other.yaml, other.yaml_hash[:12])
    except AnalysisLimitError:
        lines = ["@@ The files are too different to compare. @@"]
    return [({"+": "added", "-": "gone", "@": "place"}.get(line[:1], "same"), line) for line in lines]


@pages.get("/dags/{name}/rollback", Permission.WRITER)
async def confirm_rollback(page: PageRequest) -> Response:
    """Show the diff of a rollback and ask for confirmation."""
    async with tenant_connection(page.call) as connection:
        return page.render("rollback.html", **await _load_version(page, connection))


@pages.post("/dags/{name}/rollback", Permission.WRITER)
async def roll_back_dag(page: PageRequest) -> Response:
    """Make another version the serving one."""
    name = str(page.request.path_params["name"])
    rollback = await page.call.perform(operations.roll_back_dag, name, page.form_field("version") or None)
    return page.redirect(f"/dags/{name}", f"Version {rollback.hash[:12]} is now serving.")
