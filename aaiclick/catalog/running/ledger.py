"""What the task of a definition asks PostgreSQL for: to it directly, or by way of a server.

Rows of the catalogue are mappings here, whoever brought them. `publish` puts staged rows in place while the lease and
the generation are locked: a worker without a database has its server do that.
"""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from aaiclick.catalog.errors import DatasetError
from aaiclick.catalog.running import storage
from aaiclick.catalog.running.parquet import in_files, is_foreign, is_prefix
from aaiclick.catalog.running.work import Place, Work, find_work, make_work, no_definition
from aaiclick.data.context import get_data_context
from aaiclick.orchestration.context import get_current_context
from aaiclick.orchestration.scope import TaskScope
from aaiclick.orchestration.transport import forms
from aaiclick.store import catalog_runs, loose_files
from aaiclick.store.catalog_runs import Effects
from aaiclick.targets import ServerTarget

if TYPE_CHECKING:
    from aaiclick.data.client import Client
    from aaiclick.store.engine import Connection
    from aaiclick.store.leases import Lease


class Ledger(ABC):
    """The catalogue as one attempt sees it."""

    @abstractmethod
    async def work(self, definition_id: UUID) -> Work: ...

    @abstractmethod
    async def take_ticket(self) -> int:
        """Taken before anything is read: who has the higher one has read later."""

    @abstractmethod
    async def state(self, work: Work, definition_id: UUID, key: str) -> dict[str, Any] | None: ...

    @abstractmethod
    async def partitions(self, generation: UUID, keys: Sequence[str] | None = None) -> dict[str, Mapping[str, Any]]: ...

    @abstractmethod
    async def input_digest(self, generation: UUID) -> str: ...

    @abstractmethod
    async def announce_file(self, place: Place, name: str) -> None:
        """Say that a file is about to be written."""

    @abstractmethod
    async def locations(self, place: Place) -> list[str]:
        """Where the files of another writer are: the generation's own location, and those of registered ranges."""

    @abstractmethod
    async def publish(self, place: Place, staged: storage.Staged, ticket: int, slice_key: str) -> bool:
        """Put staged rows in place; False if newer ones are there. Raises LeaseLost."""

    @abstractmethod
    async def emit(self, effects: Effects, cursor: str) -> None:
        """Record updates that were published, and emit their events, while the task runs. Raises LeaseLost."""


def ledger_of(scope: TaskScope) -> Ledger:
    return RemoteLedger(scope) if isinstance(scope.target, ServerTarget) else DirectLedger(scope)


class DirectLedger(Ledger):
    """By connections of the task's context."""

    def __init__(self, scope: TaskScope) -> None:
        self._scope = scope

    async def work(self, definition_id: UUID) -> Work:
        async with get_current_context().connection() as connection:
            work = await find_work(connection, definition_id)
        if work.org_id != self._scope.org_id:  # the arguments of a task may name anything
            raise no_definition(definition_id)
        return work

    async def take_ticket(self) -> int:
        async with get_current_context().connection() as connection:
            return await catalog_runs.take_ticket(connection)

    async def state(self, work: Work, definition_id: UUID, key: str) -> dict[str, Any] | None:
        async with get_current_context().connection() as connection:
            return await catalog_runs.get_state(connection, work.org_id, definition_id, key)

    async def partitions(self, generation: UUID, keys: Sequence[str] | None = None) -> dict[str, Mapping[str, Any]]:
        async with get_current_context().connection() as connection:
            rows = await catalog_runs.partitions_of(connection, generation, keys)
        return {key: dict(row) for key, row in rows.items()}

    async def input_digest(self, generation: UUID) -> str:
        async with get_current_context().connection() as connection:
            return await catalog_runs.input_digest(connection, generation)

    async def announce_file(self, place: Place, name: str) -> None:
        async with get_current_context().connection() as connection:
            await loose_files.announce(connection, place.generation, name, self._scope.lease)

    async def locations(self, place: Place) -> list[str]:
        async with get_current_context().connection() as connection:
            return await catalog_runs.locations_of(connection, place.generation)

    async def publish(self, place: Place, staged: storage.Staged, ticket: int, slice_key: str) -> bool:
        data = get_data_context()
        async with get_current_context().connection() as connection:
            return await publish(
                connection, data.client, self._scope.lease, place, staged, ticket, slice_key, data.query_id()
            )

    async def emit(self, effects: Effects, cursor: str) -> None:
        async with get_current_context().connection() as connection:
            await catalog_runs.emit_updates(connection, self._scope.lease, effects.to_json(), cursor)


async def publish(
    connection: Connection,
    client: Client,
    lease: Lease,
    place: Place,
    staged: storage.Staged,
    ticket: int,
    slice_key: str,
    query_id: str = "",
) -> bool:
    """Put staged rows in place, by the holder of the lease and never over newer ones."""
    async with catalog_runs.publishing(connection, lease, place.generation, slice_key, ticket) as newest:
        # Whoever comes later replaces; but rows that are added are added, and of a key the newest is read.
        counts = newest or staged.layout.mode == "append"
        if counts and is_foreign(place.table):
            files = [each.to_json() for each in staged.attached]
            await catalog_runs.attach_files(connection, place.generation, files, staged.layout.to_json())
        elif counts and is_prefix(place.table):
            layout, files = staged.layout, [] if staged.file is None else [staged.file.to_json()]
            await catalog_runs.point_files(
                connection, place.generation, layout.mode, slice_key, staged.merged, files, layout.to_json()
            )
        elif counts:
            await storage.put_in_place(client, place.table, staged, slice_key, query_id)
    return counts


class RemoteLedger(Ledger):
    """By the server that the attempt was claimed from, under its lease."""

    def __init__(self, scope: TaskScope) -> None:
        remote = importlib.import_module("aaiclick.orchestration.transport.remote")  # loads httpx
        self._remote = remote.remote_of(scope.target)
        self._lease = forms.lease_form(scope.lease)

    async def work(self, definition_id: UUID) -> Work:
        answer = await self._ask("definition", definition=str(definition_id))
        return make_work(*catalog_runs.work_of(answer))

    async def take_ticket(self) -> int:
        return int((await self._ask("ticket"))["ticket"])

    async def state(self, work: Work, definition_id: UUID, key: str) -> dict[str, Any] | None:  # noqa: ARG002
        return (await self._ask("state", definition=str(definition_id), key=key))["state"]

    async def partitions(self, generation: UUID, keys: Sequence[str] | None = None) -> dict[str, Mapping[str, Any]]:
        asked = None if keys is None else list(keys)
        answer = await self._ask("partitions", generation=str(generation), keys=asked)
        return {each["partition_key"]: catalog_runs.partition_of(each) for each in answer["partitions"]}

    async def input_digest(self, generation: UUID) -> str:
        return (await self._ask("digest", generation=str(generation)))["digest"]

    async def announce_file(self, place: Place, name: str) -> None:  # noqa: ARG002
        raise DatasetError(
            f"The output {place.name!r} is kept in files, which workers beside the databases write.",
            remedy="Leave its job's runtime out, or keep the output in ClickHouse.",
        )

    async def locations(self, place: Place) -> list[str]:
        await self.announce_file(place, "")
        return []

    async def publish(self, place: Place, staged: storage.Staged, ticket: int, slice_key: str) -> bool:
        if in_files(place.table):
            await self.announce_file(place, "")
        answer = await self._ask(
            "publish", generation=str(place.generation), partition=slice_key, ticket=str(ticket), table=staged.table,
            rows=staged.rows,
        )  # fmt: skip
        return bool(answer["published"])

    async def emit(self, effects: Effects, cursor: str) -> None:
        await self._ask("events", cursor=cursor, effects=json.loads(effects.to_json()))

    async def _ask(self, what: str, **body: Any) -> Any:
        return await self._remote.ask(f"/v1/task/{what}", lease=self._lease, **body)
