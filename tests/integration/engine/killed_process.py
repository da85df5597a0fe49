"""Runs a scenario with a fault, in this process or in one that is killed; preloaded by the fork server of the tests."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from aaiclick import failpoints
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.postgres_connections import connect
from tests.integration.engine.flow_fault_scenarios import SCENARIOS

gc.freeze()  # a collection in a forked process would copy the imported modules


async def act(endpoint: PostgresEndpoint, failpoint: str, state: Any, fault: str, marks: str) -> None:
    db = await connect(endpoint)
    name, _, moment = failpoint.partition(".")
    failpoints.arm_faults(f"{name.partition(':')[0]}.{moment}={fault}" if fault else "", marks)
    try:
        await SCENARIOS[name].act(db, state)
    finally:
        failpoints.arm_faults("")
        db.terminate()


def act_and_die(*arguments: Any) -> None:
    asyncio.run(act(*arguments))
