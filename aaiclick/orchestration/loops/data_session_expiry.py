"""Expiry of sessions that are recorded only in ClickHouse: contexts outside of jobs.

A session modifies its marker table regularly (see `LocalLifecycleHandler`); times are of ClickHouse's clock.
"""

from __future__ import annotations

from collections.abc import Collection

from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.data.runtime.lifecycle import HEARTBEAT_SECONDS

SILENT_SECONDS = 3 * HEARTBEAT_SECONDS
"""A session without a heartbeat for this long has ended."""

_MARKERS = """
    SELECT name FROM system.tables
    WHERE database = currentDatabase() AND has({names:Array(String)}, name)
      AND metadata_modification_time > now() - toIntervalSecond({silent:UInt32})
"""


async def live_sessions(client: ClickHouseClient, sessions: Collection[int]) -> set[int]:
    """The sessions that are alive."""
    if not sessions:
        return set()
    markers = await client.read_text(
        _MARKERS, {"names": [f"t{session}" for session in sessions], "silent": int(SILENT_SECONDS)}
    )
    return {int(name[1:]) for name in markers.column(0).to_pylist()}
