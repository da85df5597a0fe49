"""DAGs: what serves, its graph, its versions side by side, its runs, and the way back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from aaiclick.catalog import analysis
from aaiclick.catalog.backfill import can_be_filled
from aaiclick.catalog.dags.words import diff_lines
from aaiclick.catalog.deploy import preload, roll_back, version_before
from aaiclick.catalog.readable import jobs_as_seen, may_read_text
from aaiclick.server.analysis_pool import AnalysisLimitError
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import changing, note, reading
from aaiclick.server.routes.datasets import reader
from aaiclick.server.ui.routing import NoSuchPageError, Pages, Visit
from aaiclick.server.ui.svg.flow import Flow, Node, draw_flow
from aaiclick.server.ui.words import definition_look
from aaiclick.store import catalog_dags, ui_dags

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection

pages = Pages()

RUNS = 60
LISTED = 100


@pages.get("/dags", Permission.READER)
async def index(visit: Visit) -> Response:
    async with reading(visit.call) as connection:
        dags = await ui_dags.list_dags(connection, visit.who.org_id, limit=LISTED + 1, offset=visit.offset)
        failed = await _failed_deploys(visit, connection, None)
    return visit.page("dags.html", dags=dags[:LISTED], more=len(dags) > LISTED, failed_deploys=failed)


async def _failed_deploys(visit: Visit, connection: Connection, name: str | None) -> Sequence[Any]:
    rows = await ui_dags.failed_deploys(connection, visit.who.org_id, name)
    return await jobs_as_seen(connection, await reader(visit.call, connection), rows) if rows else rows


@pages.get("/dags/{name}", Permission.READER)
async def show(visit: Visit) -> Response:
    async with reading(visit.call) as connection:
        choice = await _choose(visit, connection)
        nodes = await ui_dags.definitions(connection, choice["chosen"]["id"])
        newest = [row["id"] for row in choice["versions"][:50]]
        runs = await ui_dags.runs(connection, visit.who.org_id, newest, RUNS)
        failed = await _failed_deploys(visit, connection, choice["name"])

    def page() -> Response:
        return visit.page(
            "dag.html",
            **choice,
            flow=_flow(nodes),
            definitions=nodes,
            runs=runs,
            failed_deploys=failed,
            sources=[row["name"] for row in nodes if row["source"] and source_words(row["source"]) != "always_on"],
            can_be_filled=any(can_be_filled(row) for row in nodes),
        )

    return await asyncio.to_thread(page)  # a large DAG takes long to draw


async def _choose(visit: Visit, connection: Connection) -> dict[str, Any]:
    """The version that is asked for (or the one that serves), and how its text differs from what serves."""
    name, org = str(visit.request.path_params["name"]), visit.who.org_id
    versions = await catalog_dags.list_versions(connection, org, name)
    serving = next((row for row in versions if row["serving"]), None)
    if serving is None:
        raise NoSuchPageError(f"There is no DAG {name!r:.60}.", remedy="'aaiclick dag deploy FILE' makes one.")
    chosen = next((row for row in versions if row["yaml_hash"] == visit.query("version")), serving)
    shown = await catalog_dags.find_version(connection, org, name, chosen["id"])
    current = await catalog_dags.find_version(connection, org, name)
    who = await reader(visit.call, connection)
    readable = await may_read_text(connection, who, shown)
    both = readable and await may_read_text(connection, who, current)
    return {
        "name": name, "versions": versions, "chosen": chosen, "serving": serving, "before": version_before(versions),
        "yaml": shown["yaml"] if shown and readable else None,
        "difference": await _difference(current, shown) if both and chosen["id"] != serving["id"] else [],
    }  # fmt: skip


def _flow(definitions: list[Any]) -> Flow:
    makers = {dataset: row["name"] for row in definitions for dataset in row["output_datasets"] or ()}
    nodes = {row["name"]: Node(row["name"], _words(row), definition_look(row["status"])) for row in definitions}
    return draw_flow(
        nodes,
        [(makers[each], row["name"]) for row in definitions for each in row["input_datasets"] or () if each in makers],
    )


def _words(row: Any) -> str:
    return f"{row['operator']} · {source_words(row['source'])}" if row["source"] else str(row["operator"])


def source_words(text: str) -> str:
    """What starts a source."""
    source = json.loads(text)
    if source.get("kind") == "cron":
        return f"{source.get('schedule')} {source.get('timezone') or ''}".strip()
    return str(source.get("kind"))


async def _difference(current: Any, other: Any) -> list[tuple[str, str]]:
    """(kind, line) of what the other version has instead of the one that serves."""
    if current is None or other is None:
        return []
    try:
        lines = await analysis.run(diff_lines, current["yaml"], other["yaml"], other["yaml_hash"][:12])
    except AnalysisLimitError:
        lines = ["@@ The texts are too different to compare. @@"]
    return [({"+": "added", "-": "gone", "@": "place"}.get(line[:1], "same"), line) for line in lines]


@pages.get("/dags/{name}/rollback", Permission.WRITER)
async def ask(visit: Visit) -> Response:
    """Whether another version is to serve: what that changes, and the button."""
    async with reading(visit.call) as connection:
        return visit.page("rollback.html", **await _choose(visit, connection))


@pages.post("/dags/{name}/rollback", Permission.WRITER)
async def back(visit: Visit) -> Response:
    """Let another version serve."""
    name = str(visit.request.path_params["name"])
    async with reading(visit.call) as connection:
        await preload(connection, name, visit.sent("version") or None, org_id=visit.who.org_id)
    async with changing(visit.call) as connection:
        done = await roll_back(connection, name, visit.sent("version") or None, org_id=visit.who.org_id)
        await note(visit.call, connection, "dag.rollback", name, {"version": done.version_hash})
    return visit.go(f"/dags/{name}", f"Version {done.version_hash[:12]} serves.")
