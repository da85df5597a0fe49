"""PostgreSQL gateway: calls the store directly."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from aaiclick.errors import AaiclickError
from aaiclick.orchestration.function_registry import ModuleJobs, register_module_jobs
from aaiclick.orchestration.gateway.attempt import AttemptGateway, PostgresAttemptGateway
from aaiclick.orchestration.gateway.base import (
    GatewayConnection,
    Registration,
    TableRequest,
    WorkerGateway,
)
from aaiclick.orchestration.loops import leader
from aaiclick.orchestration.retry_policy import RetryPolicy
from aaiclick.orchestration.tenant_databases import TenantDatabases
from aaiclick.server_addresses import ClickHouseEndpoint, PostgresEndpoint
from aaiclick.store import postgres_connections
from aaiclick.store.engine import queue, worker_leases, workers
from aaiclick.store.engine.leases_and_outcomes import Claim, Failure, Lease, OrgQueue, OutcomeCounts, Success
from aaiclick.store.enums import DEFAULT_ORG_ID
from aaiclick.store.postgres_connections import CONNECTION_ERRORS, connect
from aaiclick.store.tables import table_references

if TYPE_CHECKING:
    from aaiclick.api.worker_protocol.claims import ClickHouseAccess
    from aaiclick.store.postgres_connections import Connection


class PostgresGatewayConnection(GatewayConnection):
    """Connection to the queue over asyncpg."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def postgres(self) -> Connection:
        return self._connection

    @property
    def is_closed(self) -> bool:
        return self._connection.is_closed()

    async def close(self) -> None:
        with contextlib.suppress(*CONNECTION_ERRORS, TimeoutError):
            await self._connection.close(timeout=1)

    def terminate(self) -> None:
        self._connection.terminate()

    @contextlib.contextmanager
    def response_deadline(self, seconds: float) -> Generator[None]:
        """Terminate the connection when the deadline passes. Cancelling would wait for the server as well."""
        is_late = False

        def terminate() -> None:
            nonlocal is_late
            is_late = True
            self._connection.terminate()

        timer = asyncio.get_running_loop().call_later(seconds, terminate)
        try:
            yield
        except Exception as error:
            if not is_late:
                raise
            # Of any type: between two steps of a statement the driver finds None in place of its protocol.
            raise TimeoutError(f"PostgreSQL has not answered within {seconds:g} s.") from error
        finally:
            timer.cancel()

    async def acknowledge_and_claim(
        self,
        *,
        worker_id: int,
        successes: Sequence[Success],
        failures: Sequence[Failure],
        releases: Sequence[Lease],
        limit: int,
        queues: Sequence[str],
        lease_seconds: float,
        on_claimed: Callable[[Sequence[Claim]], None],
    ) -> set[int]:
        accepted, _ = await queue.acknowledge_and_claim(
            self._connection,
            worker_id=worker_id,
            successes=successes,
            failures=failures,
            releases=releases,
            limit=limit,
            queues=queues,
            lease_seconds=lease_seconds,
            on_claimed=on_claimed,
        )
        return accepted

    async def seconds_to_next_due(self) -> float | None:
        return await queue.seconds_to_next_due(self._connection)

    async def mark_running(self, leases: Sequence[Lease]) -> Collection[int]:
        return await queue.start(self._connection, leases)

    async def add_counts(self, worker_id: int, report: int, tallies: Mapping[OrgQueue, OutcomeCounts]) -> None:
        await queue.count_outcomes(self._connection, worker_id, report, tallies)

    async def held_leases(self, worker_id: int) -> list[worker_leases.HeldLease]:
        return await worker_leases.list_held_leases(self._connection, worker_id)

    async def listen(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        await self._connection.add_listener(queue.READY_CHANNEL, on_ready)
        await self._connection.add_listener(queue.CANCEL_CHANNEL, on_cancel)

    async def send_log(self, lease: Lease, path: Path, offset: int) -> int:  # noqa: ARG002  (logs are read from their directory)
        return offset

    async def register_worker(self, worker: Registration) -> None:
        await queue.register_worker(
            self._connection,
            worker_id=worker.worker_id,
            hostname=worker.hostname,
            pid=worker.pid,
            pool_size=worker.pool_size,
            version=worker.version,
            queues=worker.queues,
            log_directory=worker.log_directory,
            code_version=worker.code_version,
            code_modules=worker.code_modules,
        )

    async def register_functions(self, jobs: ModuleJobs) -> None:
        await register_module_jobs(self._connection, DEFAULT_ORG_ID, jobs)

    async def renew_leases(self, worker_ids: Sequence[int], lease_seconds: float) -> None:
        await worker_leases.extend_worker_leases(self._connection, worker_ids, lease_seconds)

    async def overdue_tasks(
        self, worker_ids: Sequence[int], grace_seconds: float, default_timeout_seconds: float
    ) -> list[worker_leases.OverdueTask]:
        return await worker_leases.find_overdue_tasks(
            self._connection, worker_ids, grace_seconds, default_timeout_seconds
        )

    async def finish_worker(
        self, worker_id: int, overdue: Sequence[worker_leases.OverdueTask], crash: str | None
    ) -> None:
        await finish_worker(self._connection, worker_id, overdue, crash)

    async def run_leader_loops(self, worker_id: int, term_seconds: float) -> None:
        await leader.run_once(self._connection, worker_id=worker_id, term_seconds=term_seconds)

    async def draining_workers(self, worker_ids: Sequence[int]) -> list[int]:
        return await workers.list_draining_workers(self._connection, worker_ids)

    async def reserve_tables(self, requests: Sequence[TableRequest]) -> list[table_references.TableReferenceResult]:
        return await table_references.reserve_tables(self._connection, requests)

    async def hold_tables(self, requests: Sequence[TableRequest]) -> list[table_references.TableReferenceResult]:
        return await table_references.hold_tables(self._connection, requests)

    async def release_tables(self, requests: Sequence[TableRequest]) -> None:
        await table_references.release_tables(self._connection, requests)

    async def name_table(self, table_name: str, name: str, lease: Lease | None) -> None:
        await table_references.name_table(self._connection, table_name, name, lease)

    async def unname_table(self, table_name: str, lease: Lease | None) -> None:
        await table_references.unname_table(self._connection, table_name, lease)


async def finish_worker(
    connection: Connection, worker_id: int, overdue: Sequence[worker_leases.OverdueTask], crash: str | None
) -> None:
    """Release the tasks of an ended worker process, delayed by their retry policies."""
    await worker_leases.settle_exited_process(
        connection, worker_id=worker_id, overdue=overdue, crash=crash, delay_seconds=_delay_seconds
    )


def _delay_seconds(task: worker_leases.OverdueTask) -> float:
    return RetryPolicy.from_json(task.retry_policy).delay_seconds(task.failures + 1)


class PostgresGateway(WorkerGateway):
    """Gateway to PostgreSQL, with the configured ClickHouse."""

    name = "PostgreSQL"
    check_seconds = 0.25
    sends_logs = False

    def __init__(self, endpoint: PostgresEndpoint, clickhouse: ClickHouseEndpoint | None) -> None:
        self._endpoint = endpoint
        self._tenants = None if clickhouse is None else TenantDatabases(clickhouse)
        secrets = (endpoint.password, *((clickhouse.password, clickhouse.path) if clickhouse else ()))
        self.secrets = [secret for secret in secrets if secret]
        nodes = (clickhouse, *clickhouse.others) if clickhouse else ()
        self.addresses = frozenset([endpoint.address, *(node.address for node in nodes)])

    async def connect(self) -> GatewayConnection:
        return PostgresGatewayConnection(
            await connect(self._endpoint, silent_seconds=postgres_connections.SERVICE_IDLE_TRANSACTION_SECONDS)
        )

    def open_attempt(self, claim: Claim) -> AttemptGateway:
        return PostgresAttemptGateway(self._endpoint, claim.lease, claim.org_id, claim.job_id)

    async def clickhouse(self, org_id: UUID) -> ClickHouseEndpoint:
        if self._tenants is None:
            raise AaiclickError("This worker knows no ClickHouse.", remedy="Set AAICLICK_CLICKHOUSE_URL.")
        return await self._tenants.ensure_database(org_id)

    def export_access(self) -> ClickHouseAccess | None:
        return None

    def import_access(self, access: ClickHouseAccess | None) -> None:
        """No-op: the configuration is complete."""

    async def close(self) -> None:
        """No-op: connections share nothing."""
