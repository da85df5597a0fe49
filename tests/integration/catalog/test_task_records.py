"""Records of a task of a definition: outputs and inputs."""

from __future__ import annotations

import json

from aaiclick.catalog.execution import output_writer
from aaiclick.store.catalog import definition_runs
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.statements import statement
from tests.integration.catalog.conftest import SHOP, order
from tests.integration.catalog.test_emit import BATCHES, EMITTING

GENERATION = (
    "SELECT v.id::text, v.storage_location, v.ticket, v.updated_at FROM dataset_versions v "
    "JOIN datasets d ON d.id = v.dataset_uuid WHERE d.name = $1"
)


async def test_outputs_name_generation_location_and_partitions(shop, monkeypatch):
    monkeypatch.setattr(output_writer, "SHOWN_PARTITIONS", 1)
    await shop.deploy()
    job_id = await shop.run(order(1, 1, 10), order(2, 2, 20))
    (outputs,) = await shop.outputs(job_id, "tidy")
    generation = await shop.db.fetchrow(GENERATION, "shop.orders")
    assert outputs == {
        "orders": {
            "rows": 2, "ticket": str(generation["ticket"]), "generation": generation["id"],
            "location": generation["storage_location"], "partitions": ["2026-01-01"], "partition_count": 2,
        }
    }  # fmt: skip
    (outputs,) = await shop.outputs(job_id, "twice")
    assert set(outputs["doubled"]) == {"rows", "ticket", "generation", "location"}


async def test_outputs_of_an_emitting_source_name_its_cursors(shop):
    await shop.deploy(EMITTING)
    job_id = await shop.fire({"batches": BATCHES})
    assert await shop.finish(job_id) == "COMPLETED"
    (outputs,) = await shop.outputs(job_id, "fetch")
    assert outputs["raw"]["cursors"] == {"count": 3, "last": "c"}
    assert outputs["raw"]["rows"] == 3


async def test_inputs_are_recorded_with_the_version_that_was_read(shop):
    await shop.deploy(SHOP)
    first = await shop.run(order(1, 1, 10))
    versions = {job_: await read_versions(shop, first, job_) for job_ in ("tidy", "twice")}
    raw = await shop.db.fetchrow(GENERATION, "shop.raw")
    orders = await shop.db.fetchrow(GENERATION, "shop.orders")
    assert versions == {"tidy": [("", raw["updated_at"])], "twice": [("", orders["updated_at"])]}
    recorded = await shop.db.fetchval(
        "SELECT input_versions FROM tasks WHERE job_id = $1 AND type = 'shop.tidy'", first
    )
    assert json.loads(recorded) == {"raw": {"generation": raw["id"], "updated_at": raw["updated_at"].isoformat()}}
    second = await shop.run(order(1, 1, 11))
    ((_, later),) = await read_versions(shop, second, "tidy")
    assert later == (await shop.db.fetchrow(GENERATION, "shop.raw"))["updated_at"] > raw["updated_at"]


async def test_state_keys_of_a_definition_are_separate(shop):
    await shop.deploy(SHOP)
    definition = await shop.db.fetchval("SELECT id FROM job_definitions WHERE name = 'fetch'")
    for key, state in (("default", {"n": 1}), ("other", {"n": 2}), ("default", {"n": 3})):
        await shop.db.execute(statement("put_operator_state"), DEFAULT_ORG_ID, definition, key, json.dumps(state))
    states = [
        await definition_runs.get_state(shop.db, DEFAULT_ORG_ID, definition, key)
        for key in ("default", "other", "none")
    ]
    assert states == [{"n": 3}, {"n": 2}, None]


async def read_versions(shop, job_id, name):
    """Return the partitions and versions that the task of a definition has read."""
    rows = await shop.db.fetch(
        "SELECT i.input_partition_key, i.input_version FROM task_inputs i JOIN tasks t ON t.id = i.task_id "
        "WHERE t.job_id = $1 AND t.type = $2",
        job_id,
        f"shop.{name}",
    )
    return [tuple(row) for row in rows]
