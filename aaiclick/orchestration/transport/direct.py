"""The queue by a connection to PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.errors import AaiclickError
from aaiclick.orchestration.loops import keeper
from aaiclick.orchestration.retry import RetryPolicy
from aaiclick.orchestration.tenants import Tenants
from aaiclick.orchestration.transport.line import GONE, Line, Registration, Transport, Wish
from aaiclick.store import engine, queue, supervision, tables, workers
from aaiclick.store.engine import connect
from aaiclick.store.leases import Claim, Failure, Lane, Lease, Success, Tally
from aaiclick.targets import ClickHouseTarget, PostgresTarget

if TYPE_CHECKING:
    from aaiclick.store.engine import Connection


class DirectLine(Line):
    """Calls the store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def connection(self) -> Connection:
        return self._connection

    @property
    def closed(self) -> bool:
        return self._connection.is_closed()

    async def close(self) -> None:
        with contextlib.suppress(*GONE, TimeoutError):
            await self._connection.close(timeout=1)

    def terminate(self) -> None:
        self._connection.terminate()

    @contextlib.contextmanager
    def answering_within(self, seconds: float) -> Generator[None]:
        """Not by cancelling: the driver would wait for an answer to that, too."""
        late = False

        def give_up() -> None:
            nonlocal late
            late = True
            self._connection.terminate()

        timer = asyncio.get_running_loop().call_later(seconds, give_up)
        try:
            yield
        except Exception as error:
            if not late:
                raise
            # Whatever it is called: between two steps of a statement the driver finds None where its protocol was.
            raise TimeoutError(f"PostgreSQL has not answered within {seconds:g} s.") from error
        finally:
            timer.cancel()

    async def exchange(
        self,
        *,
        worker_id: int,
        successes: Sequence[Success],
        failures: Sequence[Failure],
        releases: Sequence[Lease],
        limit: int,
        queues: Sequence[str],
        lease_seconds: float,
    ) -> tuple[set[int], Sequence[Claim]]:
        return await queue.acknowledge_and_claim(
            self._connection,
            worker_id=worker_id,
            successes=successes,
            failures=failures,
            releases=releases,
            limit=limit,
            queues=queues,
            lease_seconds=lease_seconds,
        )

    async def next_due(self) -> float | None:
        return await queue.seconds_to_next_due(self._connection)

    async def start(self, leases: Sequence[Lease]) -> None:
        await queue.start(self._connection, leases)

    async def count(self, worker_id: int, tallies: Mapping[Lane, Tally]) -> None:
        await queue.count_outcomes(self._connection, worker_id, tallies)

    async def held(self, worker_id: int) -> list[supervision.Held]:
        return await supervision.held(self._connection, worker_id)

    async def listen(self, on_ready: Callable[..., None], on_cancel: Callable[..., None]) -> None:
        await self._connection.add_listener(queue.READY_CHANNEL, on_ready)
        await self._connection.add_listener(queue.CANCEL_CHANNEL, on_cancel)

    async def send_log(self, lease: Lease, path: Path, offset: int) -> int:  # noqa: ARG002  (logs are where they are)
        return offset

    async def register(self, worker: Registration) -> None:
        await queue.register_worker(
            self._connection,
            worker_id=worker.worker_id,
            hostname=worker.hostname,
            pid=worker.pid,
            pool_size=worker.pool_size,
            version=worker.version,
            queues=worker.queues,
            log_directory=worker.log_directory,
        )

    async def keep_leases(self, worker_ids: Sequence[int], lease_seconds: float) -> None:
        await supervision.keep_leases(self._connection, worker_ids, lease_seconds)

    async def overdue(
        self, worker_ids: Sequence[int], grace_seconds: float, default_timeout_seconds: float
    ) -> list[supervision.Overdue]:
        return await supervision.overdue(self._connection, worker_ids, grace_seconds, default_timeout_seconds)

    async def settle(self, worker_id: int, culprits: Sequence[supervision.Overdue], crashed: str | None) -> None:
        await settle(self._connection, worker_id, culprits, crashed)

    async def keep_house(self, worker_id: int, term_seconds: float) -> None:
        await keeper.run_once(self._connection, worker_id=worker_id, term_seconds=term_seconds)

    async def draining(self, worker_ids: Sequence[int]) -> list[int]:
        return await workers.draining(self._connection, worker_ids)

    async def reserve(self, wishes: Sequence[Wish]) -> list[tables.Held]:
        return await tables.reserve(self._connection, wishes)

    async def hold(self, wishes: Sequence[Wish]) -> list[tables.Held]:
        return await tables.hold(self._connection, wishes)

    async def release(self, wishes: Sequence[Wish]) -> None:
        await tables.release(self._connection, wishes)

    async def name_table(self, table_name: str, name: str, lease: Lease | None) -> None:
        await tables.name_table(self._connection, table_name, name, lease)

    async def unname_table(self, table_name: str, lease: Lease | None) -> None:
        await tables.unname_table(self._connection, table_name, lease)


async def settle(
    connection: Connection, worker_id: int, culprits: Sequence[supervision.Overdue], crashed: str | None
) -> None:
    """What a process leaves behind, by the retry policies of its tasks."""
    await supervision.settle(
        connection, worker_id=worker_id, culprits=culprits, crashed=crashed, delay_seconds=_delay_seconds
    )


def _delay_seconds(task: supervision.Overdue) -> float:
    return RetryPolicy.of(task.retry_policy).delay_seconds(task.failures + 1)


class DirectTransport(Transport):
    """PostgreSQL, and the ClickHouse that was named beside it."""

    name = "PostgreSQL"
    check_seconds = 0.25
    sends_logs = False

    def __init__(self, target: PostgresTarget, clickhouse: ClickHouseTarget | None) -> None:
        self._target = target
        self._tenants = None if clickhouse is None else Tenants(clickhouse)
        secrets = (target.password, *((clickhouse.password, clickhouse.path) if clickhouse else ()))
        self.secrets = [secret for secret in secrets if secret]
        nodes = (clickhouse, *clickhouse.others) if clickhouse else ()
        self.endpoints = frozenset([target.endpoint, *(node.endpoint for node in nodes)])

    async def open(self) -> Line:
        return DirectLine(await connect(self._target, silent_seconds=engine.SERVANT_SILENT_SECONDS))

    async def clickhouse(self, org_id: UUID) -> ClickHouseTarget:
        if self._tenants is None:
            raise AaiclickError("This worker knows no ClickHouse.", remedy="Set AAICLICK_CLICKHOUSE_URL.")
        return await self._tenants.ready(org_id)

    def tell(self) -> dict[str, Any]:
        return {}

    def hear(self, told: Mapping[str, Any]) -> None:
        """Everything is known from the start."""

    async def close(self) -> None:
        """Nothing is shared."""
