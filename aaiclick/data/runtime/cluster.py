"""Objects on a ClickHouse cluster: a local table on every shard, and one `Distributed` table over them.

    node 1 (receives the queries)           node 2                       node 3
    t123            Distributed ──────┐
    t123_local      rows 0 … N-1,     ├──►  t123_local  rows N … 2N-1    t123_local  rows 2N … 3N-1
                    rows 3N … 4N-1          …                            …

Rows are stored in ranges of `RANGE_ROWS`, one shard after the other, so a row's key determines its shard: `a + b` is
computed where the rows are, and a chunk of a map is read from a single node.

The Distributed table exists on the first node only, so that a rename, an exchange or a lock is one atomic step on one
node. Local tables keep their first name and are found through the Distributed table. A local table without a
Distributed one was left by a crash: it is listed under its own name, and the sweeper drops it. A drop removes the local
tables first and the Distributed one last, so that it can be repeated.

No ClickHouse Keeper is required: instead of ON CLUSTER, statements are sent to every node by HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aaiclick.data.compile.relation_nodes import Relation, Scan, iter_scans
from aaiclick.data.compile.select_builder import KEY
from aaiclick.data.errors import DataError, ObjectNotFoundError
from aaiclick.data.runtime.table_layout import Layout, attach_statement
from aaiclick.data.runtime.tables import ADD_SOURCE, SOURCE, Columns, Shape, Table, create_statement
from aaiclick.data.types import quote_name, quote_text
from aaiclick.errors import AaiclickError, SettingsError

if TYPE_CHECKING:
    from aaiclick.data.runtime.clickhouse_client import ClickHouseClient

RANGE_ROWS = 100_000
"""Rows per range: the default chunk size of a map, so that a chunk is on one node."""

SETTINGS: Mapping[str, Any] = {
    "distributed_foreground_insert": 1,  # an acknowledged insert must be stored
    "parallel_distributed_insert_select": 0,  # rows go to the shard of their new key, not of the old one
    "distributed_product_mode": "global",
}
LOCAL = "_local"
_LOCAL_OF = r"extract(engine_full, '\'(t[0-9]+_local)\'')"

DISTRIBUTED_TABLES = (
    f"SELECT name, {_LOCAL_OF} AS local FROM system.tables"  # noqa: S608
    " WHERE database = currentDatabase() AND engine = 'Distributed'"
)
"""The Distributed tables of a database and their local tables."""

_SHARDS = """
    SELECT shard_num, toUInt8(any(is_local)) AS here, count() AS replicas, max(shard_weight) AS weight
    FROM system.clusters WHERE cluster = {c:String} GROUP BY shard_num ORDER BY shard_num
"""
_COLUMNS = """
    SELECT name, type, (SELECT comment FROM system.tables WHERE database = currentDatabase() AND name = {t:String}) AS note
    FROM system.columns WHERE database = currentDatabase() AND table = {t:String} AND name NOT IN ({key:String}, {source:String})
    ORDER BY position
"""  # noqa: E501
_CATALOG = """(
    SELECT d.database AS database, d.name AS name, d.comment AS comment,
        if(d.engine = 'Distributed', l.rows, d.total_rows) AS total_rows,
        if(d.engine = 'Distributed', l.bytes, d.total_bytes) AS total_bytes,
        if(d.engine = 'Distributed', l.changed, d.metadata_modification_time) AS metadata_modification_time
    FROM (SELECT *, %(local_of)s AS local FROM system.tables WHERE NOT match(name, '^t[0-9]+_local$')) AS d
    LEFT JOIN (
        SELECT database, name, sum(total_rows) AS rows, sum(total_bytes) AS bytes,
            max(metadata_modification_time) AS changed
        FROM cluster(%(cluster)s, system.tables) WHERE match(name, '^t[0-9]+_local$') GROUP BY database, name
    ) AS l ON l.database = d.database AND l.name = d.local
    UNION ALL
    SELECT database, substring(name, 1, length(name) - 6), any(comment), sum(total_rows), sum(total_bytes),
        max(metadata_modification_time)
    FROM cluster(%(cluster)s, system.tables)
    WHERE match(name, '^t[0-9]+_local$') AND (database, name) GLOBAL NOT IN (
        SELECT database, %(local_of)s FROM system.tables WHERE engine = 'Distributed'
    )
    GROUP BY database, name
)"""


def local_name(name: str) -> str:
    return name + LOCAL


def find_local_table(name: str, distributed: Iterable[tuple[str, str]]) -> str | None:
    """Return the local table of an Object, or a leftover one of its name that no Distributed table uses."""
    local_by_name = dict(distributed)
    if name in local_by_name:
        return local_by_name[name]
    return None if local_name(name) in local_by_name.values() else local_name(name)


class ClusterLayout(Layout):
    """Tables on all nodes of a cluster; `nodes` are in the order of their shards."""

    settings = SETTINGS

    def __init__(self, client: ClickHouseClient, nodes: Sequence[ClickHouseClient]) -> None:
        super().__init__(client)
        self.nodes = nodes
        names = {"cluster": quote_text(client.endpoint.cluster), "local_of": _LOCAL_OF}
        self.catalog = _CATALOG % names

    # --- creating and dropping ----------------------------------------------------------------------------------------

    async def create_table(
        self, name: str, columns: Columns, shape: Shape, engine: str, session: int | None, query_id: str = ""
    ) -> None:
        local = create_statement(local_name(name), columns, shape, engine, session)
        await self._run_on_all_nodes(local, query_id=query_id)
        cluster, key = quote_text(self._client.endpoint.cluster), f"intDiv({quote_name(KEY)}, {RANGE_ROWS})"
        engine_text = f"Distributed({cluster}, currentDatabase(), {quote_text(local_name(name))}, {key})"
        await self._client.run(create_statement(name, columns, shape, engine_text, session), query_id=query_id)

    async def drop_table(self, name: str, query_id: str = "") -> None:
        local = find_local_table(name, await self._list_distributed_tables())
        if local is not None:
            await self._run_on_all_nodes(f"DROP TABLE IF EXISTS {quote_name(local)} SYNC", query_id=query_id)
        await super().drop_table(name, query_id)

    async def _list_distributed_tables(self) -> list[tuple[str, str]]:
        rows = await self._client.read_text(DISTRIBUTED_TABLES)
        return [(row["name"], row["local"]) for row in rows.to_pylist()]

    async def primary_table(self, name: str) -> str:
        local_by_name = dict(await self._list_distributed_tables())
        if name not in local_by_name:
            raise ObjectNotFoundError(
                f"There is no Object {name!r} in {self._client.endpoint}.", remedy="It was dropped."
            )
        return local_by_name[name]

    def parts_table(self, name: str) -> str:
        return local_name(name)

    async def alter_table(self, name: str, changes: str, query_id: str = "") -> None:
        """Alter the first node's table, then apply its columns to the other nodes.

        The Distributed table is last: writers read the columns there.
        """
        local_table = await self.primary_table(name)
        await self._client.run(f"ALTER TABLE {quote_name(local_table)} {changes}", query_id=query_id)
        rows = await self._client.read_text(_COLUMNS, {"t": local_table, "key": KEY, "source": SOURCE})
        columns: list[dict[str, str]] = rows.to_pylist()
        additions = [ADD_SOURCE.replace("ADD COLUMN", "ADD COLUMN IF NOT EXISTS")]
        additions += [f"ADD COLUMN IF NOT EXISTS {quote_name(row['name'])} {row['type']}" for row in columns]
        if columns:
            additions.append(f"MODIFY COMMENT {quote_text(columns[0]['note'])}")
        for node in self.nodes:
            if node is not self._client:
                await node.run(f"ALTER TABLE {quote_name(local_table)} {', '.join(additions)}")
        await self._client.run(f"ALTER TABLE {quote_name(name)} {', '.join(additions)}")

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def attach_rows(self, name: str, source: str, query_id: str = "") -> None:
        await self._run_on_all_nodes(attach_statement(local_name(name), local_name(source)), query_id=query_id)

    async def delete_rows(self, name: str, condition: str, parameters: Mapping[str, object]) -> None:
        statement = f"ALTER TABLE {quote_name(local_name(name))} DELETE WHERE {condition}"
        await self._run_on_all_nodes(statement, parameters, {"mutations_sync": 1})

    async def publish_rows(self, name: str, source: str, columns: Columns, query_id: str = "") -> None:
        """Attach rows of one shard in one step; rows of several shards range by range, each in one step.

        A writer that dies in between leaves the first ranges, and never a gap.
        """
        key = quote_name(KEY)
        query = f"SELECT DISTINCT intDiv({key}, {RANGE_ROWS}) AS r FROM {quote_name(source)} ORDER BY r"  # noqa: S608
        rows = await self._client.read_text(query)
        ranges: list[int] = rows.column(0).to_pylist()
        local_table, staging_table = await self.primary_table(name), local_name(source)
        shards = {r % len(self.nodes) for r in ranges}
        if len(shards) == 1:
            await self.nodes[shards.pop()].run(attach_statement(local_table, staging_table), query_id=query_id)
            return
        names = ", ".join(quote_name(column) for column in (KEY, *(column for column, _ in columns)))
        insert = (
            f"INSERT INTO {quote_name(local_table)} ({names}) SELECT {names} FROM {quote_name(staging_table)} "  # noqa: S608
            f"WHERE intDiv({key}, {RANGE_ROWS}) = {{r:UInt64}}"
        )
        # One block becomes one part, which is visible in one step.
        settings = {
            "min_insert_block_size_rows": 4 * RANGE_ROWS,
            "min_insert_block_size_bytes": 0,
            "max_insert_threads": 1,
        }
        for i, r in enumerate(ranges):
            try:
                await self.nodes[r % len(self.nodes)].run(insert, {"r": r}, settings)
            except AaiclickError as error:
                if not i:
                    raise
                raise DataError(
                    f"The append failed after {i:,} of {len(ranges):,} ranges of {RANGE_ROWS:,} rows: {error.what}",
                    remedy="Check the Object's length and append the remaining rows.",
                ) from error

    async def _run_on_all_nodes(
        self,
        statement: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, object] | None = None,
        query_id: str = "",
    ) -> None:
        """Run a statement on every node, even if one fails; then raise the first error."""
        calls = [
            node.run(statement, parameters, settings, f"{query_id}-{i}" if query_id else "")
            for i, node in enumerate(self.nodes)
        ]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    # --- reading ------------------------------------------------------------------------------------------------------

    async def find_single_node(self, relation: Relation) -> tuple[ClickHouseClient, Relation] | None:
        """Return the node that has all rows of a relation, and the relation over its local tables, or None."""
        scans = list(iter_scans(relation))
        shards = {_find_shard(scan, len(self.nodes)) for scan in scans}
        if len(shards) != 1 or None in shards or len(scans) != len(list(_iter_inputs(relation))):
            return None
        (shard,) = shards
        assert shard is not None  # noqa: S101
        local_tables = {scan.table: await self._local_table(scan.table) for scan in scans}
        return self.nodes[shard], _with_local_tables(relation, local_tables)

    async def _local_table(self, table: Table) -> Table:
        return Table(await self.primary_table(table.name), table.columns, table.shape, table.context, counted=False)


def _find_shard(scan: Scan, shards: int) -> int | None:
    """Return the shard of a scan's rows if they lie in one range."""
    if scan.where is not None or not scan.limit:
        return None
    first, last = scan.offset // RANGE_ROWS, (scan.offset + scan.limit - 1) // RANGE_ROWS
    return first % shards if first == last else None


def _iter_inputs(relation: Relation) -> Iterable[Scan]:
    """Yield the scans of a relation, without those of scalar subqueries."""
    if isinstance(relation, Scan):
        yield relation
    for child in relation.inputs:
        yield from _iter_inputs(child)


def _with_local_tables(relation: Relation, local_tables: Mapping[Table, Table]) -> Relation:
    if isinstance(relation, Scan):
        return replace(relation, table=local_tables[relation.table])
    return relation.with_inputs(tuple(_with_local_tables(child, local_tables) for child in relation.inputs))


# --- which node has which shard -----------------------------------------------------------------------------------


async def sort_by_shard(clients: Sequence[ClickHouseClient], cluster: str) -> list[ClickHouseClient]:
    """Sort the nodes by shard number; raises SettingsError if Objects cannot be distributed over the cluster."""
    clients_by_shard: dict[int, ClickHouseClient] = {}
    for client in clients:
        answer = await client.read_text(_SHARDS, {"c": cluster})
        rows: list[dict[str, int]] = answer.to_pylist()
        _check_shards(rows, client, len(clients), cluster)
        clients_by_shard[next(row["shard_num"] for row in rows if row["here"])] = client
    if len(clients_by_shard) != len(clients):
        raise _cluster_error(cluster, "two of the URLs are nodes of the same shard", "Name one node of each shard.")
    return [clients_by_shard[number] for number in sorted(clients_by_shard)]


def _check_shards(rows: Sequence[Mapping[str, int]], client: ClickHouseClient, shards: int, cluster: str) -> None:
    address = f"{client.endpoint.host}:{client.endpoint.port}"
    if not rows:
        raise _cluster_error(
            cluster, f"{address} does not know it", "Add it to remote_servers in the configuration of every node."
        )
    if len(rows) != shards:
        raise _cluster_error(
            cluster, f"{address} counts {len(rows)} shards, and there are {shards} URLs", "Name every shard once."
        )
    if any(row["replicas"] != 1 or row["weight"] != 1 for row in rows):
        raise _cluster_error(
            cluster, "a shard has replicas or a weight", "Use one server for each shard, all of weight 1, for Objects."
        )
    if sum(row["here"] for row in rows) != 1:
        raise _cluster_error(
            cluster, f"{address} is not one of its shards", "Name nodes of the cluster by their own addresses."
        )


def _cluster_error(cluster: str, why: str, remedy: str) -> SettingsError:
    return SettingsError(f"Objects cannot be spread over the cluster {cluster!r}: {why}.", remedy=remedy)
