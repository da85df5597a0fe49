"""Whether a context that only ClickHouse knows of lives: by the marker that it changes regularly.

A marker is a table named by the session (see `LocalLifecycleHandler`), and its time that of ClickHouse's own clock.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from aaiclick.data.client import Client
from aaiclick.data.lifecycle import BEAT_SECONDS

SILENT_SECONDS = 3 * BEAT_SECONDS
"""A session that has missed two beats is dead."""

_MARKERS = """
    SELECT name FROM system.tables
    WHERE database = currentDatabase() AND has({names:Array(String)}, name)
      AND metadata_modification_time > now() - toIntervalSecond({silent:UInt32})
"""


async def live_sessions(client: Client, sessions: Collection[int]) -> set[int]:
    """Those of the sessions that live."""
    if not sessions:
        return set()
    found: Any = await client.read_text(
        _MARKERS, {"names": [f"t{session}" for session in sessions], "silent": int(SILENT_SECONDS)}
    )
    return {int(name[1:]) for name in found.column(0).to_pylist()}
