"""Objects on a ClickHouse cluster: a local table on every shard, and one `Distributed` table that makes them one.

    node 1 (the one that is asked)          node 2                       node 3
    t123            Distributed ──────┐
    t123_local      rows 0 … N-1,     ├──►  t123_local  rows N … 2N-1    t123_local  rows 2N … 3N-1
                    rows 3N … 4N-1          …                            …

Rows lie in ranges of `RANGE_ROWS`, one shard after the other, so a row's key says where it is: `a + b` is computed
where the rows are, and a chunk of a map is read from the one node that has it.

The Distributed table is on the first node alone. Whatever must happen in one step (a rename, an exchange, a lock) then
happens on one node, in one step; local tables keep the name they were made with, and are found through it. A local
table to which no Distributed one leads is what a crash left: it counts as a table of its own name, and the sweeper
finds it. To drop is to drop the local tables first and the Distributed one last, so that it can be said again.

There is no Keeper here, so nothing is ON CLUSTER: every node is told by HTTP.
"""

# pyarrow ships no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aaiclick.data.errors import DataError, ObjectNotFoundError
from aaiclick.data.frame import KEY
from aaiclick.data.layout import Layout, attach_statement
from aaiclick.data.relations import Relation, Scan, scans
from aaiclick.data.tables import (
    ADD_SOURCE,
    SOURCE,
    Columns,
    Shape,
    Table,
    create_statement,
)
from aaiclick.data.types import quote_name, quote_text
from aaiclick.errors import AaiclickError, SettingsError

if TYPE_CHECKING:
    from aaiclick.data.client import Client

RANGE_ROWS = 100_000
"""Rows of one range: the default chunk of a map, so that a chunk has one home."""

SETTINGS: Mapping[str, Any] = {
    "distributed_foreground_insert": 1,  # an acknowledged insert must be there
    "parallel_distributed_insert_select": 0,  # rows go where their new key belongs, not where the old one did
    "distributed_product_mode": "global",
}
LOCAL = "_local"
_LOCAL_OF = r"extract(engine_full, '\'(t[0-9]+_local)\'')"

REFERRING = (
    f"SELECT name, {_LOCAL_OF} AS local FROM system.tables"  # noqa: S608
    " WHERE database = currentDatabase() AND engine = 'Distributed'"
)
"""The Distributed tables of a database, and where they lead."""

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


def local_to_drop(name: str, referring: Iterable[tuple[str, str]]) -> str | None:
    """The local tables that go with an Object: those it leads to, or those of its name if nothing leads there."""
    found = dict(referring)
    if name in found:
        return found[name]
    return None if local_name(name) in found.values() else local_name(name)


class ClusterLayout(Layout):
    """Tables on all nodes of a cluster; `nodes` are in the order of their shards."""

    settings = SETTINGS

    def __init__(self, client: Client, nodes: Sequence[Client]) -> None:
        super().__init__(client)
        self.nodes = nodes
        words = {"cluster": quote_text(client.target.cluster), "local_of": _LOCAL_OF}
        self.catalog = _CATALOG % words

    # --- making and dropping ------------------------------------------------------------------------------------------

    async def create(
        self, name: str, columns: Columns, shape: Shape, engine: str, session: int | None, query_id: str = ""
    ) -> None:
        local = create_statement(local_name(name), columns, shape, engine, session)
        await self._everywhere(local, query_id=query_id)
        cluster, key = quote_text(self._client.target.cluster), f"intDiv({quote_name(KEY)}, {RANGE_ROWS})"
        spread = f"Distributed({cluster}, currentDatabase(), {quote_text(local_name(name))}, {key})"
        await self._client.run(create_statement(name, columns, shape, spread, session), query_id=query_id)

    async def drop(self, name: str, query_id: str = "") -> None:
        local = local_to_drop(name, await self._referring())
        if local is not None:
            await self._everywhere(f"DROP TABLE IF EXISTS {quote_name(local)} SYNC", query_id=query_id)
        await super().drop(name, query_id)

    async def _referring(self) -> list[tuple[str, str]]:
        rows: Any = await self._client.read_text(REFERRING)
        return [(row["name"], row["local"]) for row in rows.to_pylist()]

    async def place_of(self, name: str) -> str:
        found = dict(await self._referring())
        if name not in found:
            raise ObjectNotFoundError(
                f"There is no Object {name!r} in {self._client.target}.", remedy="It was dropped."
            )
        return found[name]

    def parts_of(self, name: str) -> str:
        return local_name(name)

    async def define(self, name: str, changes: str, query_id: str = "") -> None:
        """The first node decides; what came of it is said to the others, and to the Distributed table last, by whose
        columns writers go.
        """
        place = await self.place_of(name)
        await self._client.run(f"ALTER TABLE {quote_name(place)} {changes}", query_id=query_id)
        rows: Any = await self._client.read_text(_COLUMNS, {"t": place, "key": KEY, "source": SOURCE})
        columns: list[dict[str, str]] = rows.to_pylist()
        decided = [ADD_SOURCE.replace("ADD COLUMN", "ADD COLUMN IF NOT EXISTS")]
        decided += [f"ADD COLUMN IF NOT EXISTS {quote_name(row['name'])} {row['type']}" for row in columns]
        if columns:
            decided.append(f"MODIFY COMMENT {quote_text(columns[0]['note'])}")
        for node in self.nodes:
            if node is not self._client:
                await node.run(f"ALTER TABLE {quote_name(place)} {', '.join(decided)}")
        await self._client.run(f"ALTER TABLE {quote_name(name)} {', '.join(decided)}")

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def attach(self, name: str, source: str, query_id: str = "") -> None:
        await self._everywhere(attach_statement(local_name(name), local_name(source)), query_id=query_id)

    async def delete(self, name: str, condition: str, parameters: Mapping[str, Any]) -> None:
        statement = f"ALTER TABLE {quote_name(local_name(name))} DELETE WHERE {condition}"
        await self._everywhere(statement, parameters, {"mutations_sync": 1})

    async def publish(self, name: str, source: str, columns: Columns, query_id: str = "") -> None:
        """Rows on one shard are attached at once. Of several, range after range, each at once: who dies on the way
        leaves the first of them, and never a gap.
        """
        key = quote_name(KEY)
        ranged = f"SELECT DISTINCT intDiv({key}, {RANGE_ROWS}) AS r FROM {quote_name(source)} ORDER BY r"  # noqa: S608
        rows: Any = await self._client.read_text(ranged)
        ranges: list[int] = rows.column(0).to_pylist()
        place, staged = await self.place_of(name), local_name(source)
        homes = {r % len(self.nodes) for r in ranges}
        if len(homes) == 1:
            await self.nodes[homes.pop()].run(attach_statement(place, staged), query_id=query_id)
            return
        names = ", ".join(quote_name(column) for column in (KEY, *(column for column, _ in columns)))
        insert = (
            f"INSERT INTO {quote_name(place)} ({names}) SELECT {names} FROM {quote_name(staged)} "  # noqa: S608
            f"WHERE intDiv({key}, {RANGE_ROWS}) = {{r:UInt64}}"
        )
        # One block makes one part, and that comes all at once.
        whole = {
            "min_insert_block_size_rows": 4 * RANGE_ROWS,
            "min_insert_block_size_bytes": 0,
            "max_insert_threads": 1,
        }
        for i, r in enumerate(ranges):
            try:
                await self.nodes[r % len(self.nodes)].run(insert, {"r": r}, whole)
            except AaiclickError as error:
                if not i:
                    raise
                raise DataError(
                    f"The append ended after {i:,} of {len(ranges):,} ranges of {RANGE_ROWS:,} rows: {error.what}",
                    remedy="Compare the Object's length with what was to be appended, and append the rest.",
                ) from error

    async def _everywhere(
        self,
        statement: str,
        parameters: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        query_id: str = "",
    ) -> None:
        """Tell every node, each whatever becomes of the others; raises if one could not do it."""
        told = [
            node.run(statement, parameters, settings, f"{query_id}-{i}" if query_id else "")
            for i, node in enumerate(self.nodes)
        ]
        for outcome in await asyncio.gather(*told, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    # --- reading ------------------------------------------------------------------------------------------------------

    async def home_of(self, relation: Relation) -> tuple[Client, Relation] | None:
        """The node that has all rows of a relation, and the relation over its local tables; None if there is none."""
        found = list(scans(relation))
        homes = {_home(scan, len(self.nodes)) for scan in found}
        if len(homes) != 1 or None in homes or len(found) != len(list(_inputs(relation))):
            return None
        (home,) = homes
        assert home is not None  # noqa: S101
        places = {scan.table: await self._local_table(scan.table) for scan in found}
        return self.nodes[home], _over(relation, places)

    async def _local_table(self, table: Table) -> Table:
        return Table(await self.place_of(table.name), table.columns, table.shape, table.context, counted=False)


def _home(scan: Scan, shards: int) -> int | None:
    """The shard of all rows of a scan, if they lie in one range."""
    if scan.where is not None or not scan.limit:
        return None
    first, last = scan.offset // RANGE_ROWS, (scan.offset + scan.limit - 1) // RANGE_ROWS
    return first % shards if first == last else None


def _inputs(relation: Relation) -> Iterable[Scan]:
    """The tables read, without those of scalar subqueries."""
    if isinstance(relation, Scan):
        yield relation
    for each in relation.inputs:
        yield from _inputs(each)


def _over(relation: Relation, places: Mapping[Table, Table]) -> Relation:
    if isinstance(relation, Scan):
        return replace(relation, table=places[relation.table])
    return relation.with_inputs(tuple(_over(each, places) for each in relation.inputs))


# --- which node has which shard -----------------------------------------------------------------------------------


async def in_order_of_shards(clients: Sequence[Client], cluster: str) -> list[Client]:
    """The nodes by their place in the cluster; raises if that is not one that Objects can be spread over."""
    homes: dict[int, Client] = {}
    for client in clients:
        answer: Any = await client.read_text(_SHARDS, {"c": cluster})
        rows: list[dict[str, int]] = answer.to_pylist()
        _check(rows, client, len(clients), cluster)
        homes[next(row["shard_num"] for row in rows if row["here"])] = client
    if len(homes) != len(clients):
        raise _unfit(cluster, "two of the URLs lead to the same shard", "Name one node of each shard.")
    return [homes[number] for number in sorted(homes)]


def _check(rows: Sequence[Mapping[str, int]], client: Client, shards: int, cluster: str) -> None:
    where = f"{client.target.host}:{client.target.port}"
    if not rows:
        raise _unfit(
            cluster, f"{where} does not know it", "Add it to remote_servers in the configuration of every node."
        )
    if len(rows) != shards:
        raise _unfit(
            cluster, f"{where} counts {len(rows)} shards, and there are {shards} URLs", "Name every shard once."
        )
    if any(row["replicas"] != 1 or row["weight"] != 1 for row in rows):
        raise _unfit(
            cluster, "a shard has replicas or a weight", "Use one server for each shard, all of weight 1, for Objects."
        )
    if sum(row["here"] for row in rows) != 1:
        raise _unfit(cluster, f"{where} is not one of its shards", "Name nodes of the cluster by their own addresses.")


def _unfit(cluster: str, why: str, remedy: str) -> SettingsError:
    return SettingsError(f"Objects cannot be spread over the cluster {cluster!r}: {why}.", remedy=remedy)
