"""From a relation to its rows: prepare, compile, run."""

# pyarrow and clickhouse-connect ship no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

import pyarrow as pa

from aaiclick.data.client import Client
from aaiclick.data.cluster import ClusterLayout
from aaiclick.data.compiler import LENGTH_MARK, Compiler
from aaiclick.data.context import DataContext
from aaiclick.data.errors import LengthError, ObjectNotFoundError, QueryError
from aaiclick.data.fences import fenced
from aaiclick.data.nodes import Ref
from aaiclick.data.relations import Aggregate, Concat, Distinct, Join, Project, Relation, Scan, Sort, Zip
from aaiclick.data.results import normalise, normalise_batch
from aaiclick.data.sql import to_text
from aaiclick.data.statements import Compiled, compile_insert, compile_query
from aaiclick.data.tables import Shape, Table

T = TypeVar("T")
HEAVY = (Aggregate, Distinct, Join, Sort, Zip, Concat)


def is_heavy(relation: Relation) -> bool:
    """Whether computing it again would cost more than reading it back."""
    if isinstance(relation, Aggregate) and not relation.keys:
        return False
    return isinstance(relation, HEAVY) or any(is_heavy(each) for each in relation.inputs)


async def prepare(context: DataContext, relation: Relation) -> Relation:
    """Make tables of what one SELECT cannot do well, and look up where filtered views begin."""
    repeated = {each for each, times in Counter(_heavy_parts(relation)).items() if times > 1}
    return await _prepare(context, relation, repeated, {})


def _heavy_parts(relation: Relation) -> list[Relation]:
    own = [relation] if isinstance(relation, HEAVY) and is_heavy(relation) else []
    return own + [part for each in relation.inputs for part in _heavy_parts(each)]


async def _prepare(
    context: DataContext, relation: Relation, repeated: set[Relation], made: dict[Relation, Relation]
) -> Relation:
    if relation in made:
        return made[relation]
    if isinstance(relation, Scan):
        return await fenced(context, relation)
    inputs = tuple([await _prepare(context, each, repeated, made) for each in relation.inputs])
    if isinstance(relation, Zip):
        inputs = tuple([await _dense(context, each) for each in inputs])
    ready = relation.with_inputs(inputs)
    if relation in repeated:
        ready = Scan(await store(context, ready, "table"))
        made[relation] = ready
    return ready


async def _dense(context: DataContext, relation: Relation) -> Relation:
    """Rows to be put side by side need dense keys: those of a table, or of a range of one."""
    if isinstance(relation, Scan) and relation.where is None:
        return relation
    return Scan(await store(context, relation, "table"))


async def store(context: DataContext, relation: Relation, shape: Shape) -> Table:
    """Write a prepared relation to a new table."""
    query = compile_insert(relation, "")

    async def fill(name: str) -> None:
        insert = compile_insert(relation, name)
        await _reporting_lengths(
            context, relation, context.client.run(insert.text, insert.parameters, insert.settings, context.query_id())
        )

    table, _ = await context.create_table(query.columns, shape, fill)
    return table


async def read(context: DataContext, relation: Relation, *, ordered: bool = True) -> tuple[pa.Table, Compiled]:
    context.check(relation)
    relation = await prepare(context, relation)
    table, query = await _read_at_home(context, relation, ordered) or await _read(
        context, context.client, relation, ordered
    )
    return normalise(table, query.columns), query


async def _read_at_home(context: DataContext, relation: Relation, ordered: bool) -> tuple[pa.Table, Compiled] | None:
    """Read rows that one node of a cluster has from there; None if they are spread."""
    if not isinstance(context.client.layout, ClusterLayout):
        return None
    try:
        home = await context.client.layout.home_of(relation)
        return None if home is None else await _read(context, *home, ordered)
    except ObjectNotFoundError:  # replaced in between: the node that is asked knows the new one
        return None


async def _read(context: DataContext, client: Client, relation: Relation, ordered: bool) -> tuple[pa.Table, Compiled]:
    query = compile_query(relation, ordered=ordered, arrow=True)
    return await _reporting_lengths(context, relation, client.read(query, context.query_id())), query


async def read_batches(context: DataContext, relation: Relation) -> AsyncGenerator[pa.RecordBatch, None]:
    context.check(relation)
    relation = await prepare(context, relation)
    query = compile_query(relation, arrow=True)
    stream = context.client.batches(query, context.query_id())
    try:
        async for batch in stream:
            yield normalise_batch(batch, query.columns)
    finally:
        await stream.aclose()


async def _reporting_lengths(context: DataContext, relation: Relation, work: Awaitable[T]) -> T:
    try:
        return await work
    except QueryError as error:
        if LENGTH_MARK not in error.what:
            raise
        shown = " and ".join(f"{each:,}" for each in await lengths(context, relation))
        raise LengthError(
            f"Objects of {shown} rows cannot be combined row by row.",
            remedy="Join them on a column, or slice them to one length.",
        ) from None


async def lengths(context: DataContext, relation: Relation) -> list[int]:
    """The lengths of the Objects that were combined row by row."""
    found: list[int] = []
    for zipped in _zips(relation):
        for member in zipped.members:
            compiler = Compiler()
            tree = compiler.count(member)
            rows = await context.client.read_text(to_text(tree), compiler.parameters, query_id=context.query_id())
            found.append(rows.column(0)[0].as_py())
        if len(set(found)) > 1:
            return found
        found.clear()
    return found


def _zips(relation: Relation) -> list[Zip]:
    own = [relation] if isinstance(relation, Zip) else []
    return own + [each for inner in relation.inputs for each in _zips(inner)]


def is_table(relation: Relation) -> bool:
    """Whether it is exactly one whole table."""
    return isinstance(relation, Scan) and relation == Scan(relation.table)


def strip(relation: Relation) -> Relation:
    """Without projections that change nothing."""
    while isinstance(relation, Project) and _is_identity(relation):
        relation = relation.input
    return relation


def _is_identity(relation: Project) -> bool:
    names = [name for name, _ in relation.columns]
    return names == list(relation.input.schema) and all(
        isinstance(n, Ref) and n.name == name for name, n in relation.columns
    )
