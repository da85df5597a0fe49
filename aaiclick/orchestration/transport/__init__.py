"""How a worker speaks with the queue: to PostgreSQL itself, or over HTTP to a server that does.

There is one worker. What it says is in `line.Line`; `direct` says it in SQL, `remote` in JSON (`forms`), and
`aaiclick.server` answers the latter with the same functions of the store that the former calls.
"""

from __future__ import annotations

import importlib

from aaiclick.orchestration.transport.direct import DirectTransport
from aaiclick.orchestration.transport.line import Line, Transport
from aaiclick.targets import ClickHouseTarget, PostgresTarget, WorkTarget

__all__ = ["DirectTransport", "Line", "Transport", "make_transport"]


def make_transport(work: WorkTarget, clickhouse: ClickHouseTarget | None, *, sends_logs: bool = True) -> Transport:
    """A transport to where the work is; with a server, where ClickHouse is comes with the claims."""
    if isinstance(work, PostgresTarget):
        return DirectTransport(work, clickhouse)
    remote = importlib.import_module("aaiclick.orchestration.transport.remote")  # the HTTP client is for who needs it
    return remote.RemoteTransport(work, sends_logs=sends_logs)
