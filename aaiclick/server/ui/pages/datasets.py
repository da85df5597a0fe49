"""Datasets: what is published, where it comes from and where it goes. One sees what one's roles may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from starlette.responses import Response

from aaiclick.catalog.datasets import layout_of, preview
from aaiclick.data.client import connect as connect_clickhouse
from aaiclick.errors import NotFoundError
from aaiclick.server.permissions import Permission
from aaiclick.server.routes.common import reading
from aaiclick.server.ui.routing import Pages, Visit
from aaiclick.server.ui.svg.flow import Flow, Node, draw_flow
from aaiclick.server.ui.words import look
from aaiclick.store import ui_dags

if TYPE_CHECKING:
    import asyncpg

    from aaiclick.store.engine import Connection

pages = Pages()

ROWS = 20
LISTED = 100


@pages.get("/datasets", Permission.READER)
async def index(visit: Visit) -> Response:
    async with reading(visit.call) as connection:
        roles = await roles_of(visit, connection)
        rows = await ui_dags.datasets(connection, visit.who.org_id, roles, limit=LISTED + 1, offset=visit.offset)
    return visit.page("datasets.html", datasets=rows[:LISTED], more=len(rows) > LISTED)


@pages.get("/datasets/{dataset_id:uuid}", Permission.READER)
async def show(visit: Visit) -> Response:
    dataset_id: UUID = visit.request.path_params["dataset_id"]
    org = visit.who.org_id
    async with reading(visit.call) as connection:
        roles = await roles_of(visit, connection)
        seen = {str(row["id"]): row for row in await ui_dags.datasets(connection, org, roles)}
        dataset = seen.get(str(dataset_id))
        if dataset is None:
            raise NotFoundError("There is no such dataset, or none that you may read.")
        versions = await ui_dags.dataset_versions(connection, dataset_id)
        columns = await ui_dags.column_lineage(connection, dataset_id)
        makers = await ui_dags.serving_definitions(connection, org)
    layout = layout_of(dataset)
    rows = await _first_rows(visit, dataset)
    return visit.page(
        "dataset.html",
        layout=layout,
        rows=rows,
        dataset=dataset,
        versions=versions,
        columns=[row for row in columns if str(row["input_id"]) in seen],
        flow=_lineage(str(dataset_id), seen, makers),
    )


async def _first_rows(visit: Visit, dataset: asyncpg.Record) -> list[dict[str, Any]]:
    clickhouse = await connect_clickhouse(await visit.service.clickhouse(visit.who.org_id))
    return await preview(clickhouse, dataset, ROWS)


async def roles_of(visit: Visit, connection: Connection) -> list[str] | None:
    """None for an admin, who sees all; a user's roles; nothing for anybody else."""
    if visit.may("admin"):
        return None
    kind, _, who = visit.who.actor.partition(" ")
    return await ui_dags.roles_of(connection, visit.who.org_id, UUID(who)) if kind == "user" else []


def _lineage(center: str, seen: dict[str, Any], definitions: list[Any]) -> Flow:
    """Everything that a dataset comes from and everything made of it, as far as one may see it."""
    into: dict[str, list[Any]] = {}
    out: dict[str, list[Any]] = {}
    for row in definitions:
        for each in row["output_datasets"] or ():
            into.setdefault(each, []).append(row)
        for each in row["input_datasets"] or ():
            out.setdefault(each, []).append(row)
    nodes: dict[str, Node] = {}
    edges: set[tuple[str, str]] = set()
    for start, column in ((into, "input_datasets"), (out, "output_datasets")):
        waiting = [center]
        reached: set[str] = set()
        while waiting:
            at = waiting.pop()
            if at in reached or at not in seen:
                continue
            reached.add(at)
            name = seen[at]["name"]
            nodes[at] = Node(name, "dataset", "completed", f"/datasets/{at}", marked=at == center)
            for row in start.get(at, ()):
                job = f"job {row['id']}"
                nodes[job] = Node(row["name"], f"{row['operator']} of {row['dag_name']}", look(row["status"]))
                edges.add((job, at) if start is into else (at, job))
                for each in row[column] or ():
                    if each in seen:
                        edges.add((each, job) if start is into else (job, each))
                        waiting.append(each)
    return draw_flow(nodes, edges)
