"""Dataset pages: list, preview, versions and lineage, limited to datasets that the caller's roles may read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from starlette.responses import Response

from aaiclick.catalog.dataset_queries import parse_layout, preview_rows
from aaiclick.data.runtime.clickhouse_client import connect as connect_clickhouse
from aaiclick.errors import NotFoundError
from aaiclick.operations import freshness
from aaiclick.operations.actor import Permission
from aaiclick.operations.dataset_reader import dataset_reader
from aaiclick.server.routes.common import tenant_connection
from aaiclick.server.ui.routing import PageRequest, Pages
from aaiclick.server.ui.svg.dag_graph import DagDrawing, DagNode, draw_dag
from aaiclick.server.ui.template_filters import css_class
from aaiclick.store.catalog import data_test_results
from aaiclick.store.catalog.datasets import ServedDataset
from aaiclick.store.ui import dag_queries

pages = Pages()

PREVIEW_ROWS = 20
MAX_ROWS = 100


@pages.get("/datasets", Permission.READER)
async def list_datasets(page: PageRequest) -> Response:
    async with tenant_connection(page.call) as connection:
        reader = await dataset_reader(connection, page.caller)
        rows = await dag_queries.list_datasets(connection, reader, limit=MAX_ROWS + 1, offset=page.offset)
    return page.render("datasets.html", datasets=rows[:MAX_ROWS], more=len(rows) > MAX_ROWS)


@pages.get("/datasets/{dataset_id:uuid}", Permission.READER)
async def show_dataset(page: PageRequest) -> Response:
    dataset_id: UUID = page.request.path_params["dataset_id"]
    async with tenant_connection(page.call) as connection:
        reader = await dataset_reader(connection, page.caller)
        readable = {str(row.id): row for row in await dag_queries.list_datasets(connection, reader)}
        dataset = readable.get(str(dataset_id))
        if dataset is None:
            raise NotFoundError("Dataset not found, or you may not read it.")
        versions = await dag_queries.list_dataset_versions(connection, dataset_id)
        columns = await dag_queries.list_column_lineage(connection, dataset_id)
        makers = await dag_queries.list_lineage_definitions(connection, reader.org_id)
        tests = await data_test_results.list_subject_tests(connection, reader, dataset.name, limit=PREVIEW_ROWS)
    fresh = await page.call.perform(freshness.list_freshness, dataset=dataset.name)
    layout = parse_layout(dataset)
    rows = await _first_rows(page, dataset)
    return page.render(
        "dataset.html",
        layout=layout,
        rows=rows,
        dataset=dataset,
        versions=versions,
        tests=tests,
        freshness=fresh[0] if fresh else None,
        columns=[row for row in columns if str(row["input_id"]) in readable],
        flow=_draw_lineage(str(dataset_id), readable, makers),
    )


async def _first_rows(page: PageRequest, dataset: ServedDataset) -> list[dict[str, object]]:
    clickhouse = await connect_clickhouse(await page.app_state.clickhouse_endpoint(page.caller.org_id))
    return await preview_rows(clickhouse, dataset, PREVIEW_ROWS)


def _draw_lineage(center: str, readable: Mapping[str, ServedDataset], definitions: list[Any]) -> DagDrawing:
    """Draw everything upstream and downstream of a dataset that the caller may read."""
    producers: dict[str, list[Any]] = {}
    consumers: dict[str, list[Any]] = {}
    for row in definitions:
        for dataset_id in row["output_datasets"] or ():
            producers.setdefault(dataset_id, []).append(row)
        for dataset_id in row["input_datasets"] or ():
            consumers.setdefault(dataset_id, []).append(row)
    nodes: dict[str, DagNode] = {}
    edges: set[tuple[str, str]] = set()
    for neighbours, column in ((producers, "input_datasets"), (consumers, "output_datasets")):
        pending = [center]
        reached: set[str] = set()
        while pending:
            current = pending.pop()
            if current in reached or current not in readable:
                continue
            reached.add(current)
            name = readable[current].name
            nodes[current] = DagNode(name, "dataset", "completed", f"/datasets/{current}", marked=current == center)
            for row in neighbours.get(current, ()):
                job = f"job {row['id']}"
                nodes[job] = DagNode(row["name"], f"{row['operator']} of {row['dag_name']}", css_class(row["status"]))
                edges.add((job, current) if neighbours is producers else (current, job))
                for dataset_id in row[column] or ():
                    if dataset_id in readable:
                        edges.add((dataset_id, job) if neighbours is producers else (job, dataset_id))
                        pending.append(dataset_id)
    return draw_dag(nodes, edges)
