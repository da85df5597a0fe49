"""Execution of relations: prepare, compile, run."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable
from typing import TypeVar

import pyarrow as pa

from aaiclick.data.compile.relation_compiler import LENGTH_MISMATCH, Compiler
from aaiclick.data.compile.relation_nodes import (
    Aggregate,
    Concat,
    Distinct,
    Join,
    Project,
    Relation,
    Scan,
    Slice,
    Sort,
    Zip,
    iter_scans,
)
from aaiclick.data.compile.sql import to_text
from aaiclick.data.compile.statements import CompiledQuery, compile_insert, compile_query
from aaiclick.data.context import DataContext
from aaiclick.data.errors import LengthError, ObjectNotFoundError, QueryError
from aaiclick.data.expressions.nodes import Ref
from aaiclick.data.io.from_arrow import normalise, normalise_batch
from aaiclick.data.runtime.chunk_boundaries import with_start_key
from aaiclick.data.runtime.clickhouse_client import ClickHouseClient
from aaiclick.data.runtime.cluster import ClusterLayout
from aaiclick.data.runtime.tables import Columns, Shape, Table

T = TypeVar("T")
MAX_LITERAL_BYTES_PER_QUERY = 256 << 10
HEAVY = (Aggregate, Distinct, Join, Sort, Zip, Concat)


def is_heavy(relation: Relation) -> bool:
    """Whether computing the relation again would cost more than storing and reading it."""
    if isinstance(relation, Aggregate) and not relation.keys:
        return False
    return isinstance(relation, HEAVY) or any(is_heavy(part) for part in relation.inputs)


async def prepare_relation(context: DataContext, relation: Relation) -> Relation:
    """Store repeated expensive parts and large literals in tables, and look up the start keys of filtered views."""
    await _store_large_literals(context, relation)
    repeated = {part for part, times in Counter(_heavy_parts(relation)).items() if times > 1}
    return await _prepare_inputs(context, relation, repeated, {})


async def _store_large_literals(context: DataContext, relation: Relation) -> None:
    """Store literals that together make the query too long; on a cluster all of them, since nodes share only tables."""
    literals = {scan.table: scan.table.literal.rows.nbytes for scan in iter_scans(relation) if scan.table.literal}
    limit = 0 if isinstance(context.client.layout, ClusterLayout) else MAX_LITERAL_BYTES_PER_QUERY
    if literals and sum(literals.values()) > limit:
        for table in literals:
            await context.store_literal(table)


def read_literal(relation: Relation) -> pa.Table | None:
    """Rows of a literal, of a range of its rows or of some of its columns; None if the relation is anything else."""
    if isinstance(relation, Scan):
        if relation.table.literal is None or relation.where is not None:
            return None
        return relation.table.literal.rows.slice(relation.offset, relation.limit)
    if isinstance(relation, Slice):
        rows = read_literal(relation.input)
        return None if rows is None or relation.from_end else rows.slice(relation.offset, relation.limit)
    if isinstance(relation, Project) and all(isinstance(node, Ref) for _, node in relation.columns):
        rows = read_literal(relation.input)
        sources = [node.name for _, node in relation.columns if isinstance(node, Ref)]
        names = [name for name, _ in relation.columns]
        return None if rows is None else rows.select(sources).rename_columns(names)
    return None


def _heavy_parts(relation: Relation) -> list[Relation]:
    own = [relation] if isinstance(relation, HEAVY) and is_heavy(relation) else []
    return own + [part for child in relation.inputs for part in _heavy_parts(child)]


async def _prepare_inputs(
    context: DataContext, relation: Relation, repeated: set[Relation], stored: dict[Relation, Relation]
) -> Relation:
    if relation in stored:
        return stored[relation]
    if isinstance(relation, Scan):
        return await with_start_key(context, relation)
    inputs = tuple([await _prepare_inputs(context, part, repeated, stored) for part in relation.inputs])
    if isinstance(relation, Zip):
        inputs = tuple([await _ensure_dense_keys(context, part) for part in inputs])
    ready = relation.with_inputs(inputs)
    if relation in repeated:
        ready = Scan(await store_table(context, ready, "table"))
        stored[relation] = ready
    return ready


async def _ensure_dense_keys(context: DataContext, relation: Relation) -> Relation:
    """Store a relation unless its keys are dense, which combining row by row requires."""
    if isinstance(relation, Scan) and relation.where is None:
        return relation
    return Scan(await store_table(context, relation, "table"))


async def store_table(context: DataContext, relation: Relation, shape: Shape) -> Table:
    """Write a prepared relation to a new table."""
    query = compile_insert(relation, "")

    async def fill(name: str) -> None:
        insert = compile_insert(relation, name)
        await _explain_length_mismatch(
            context, relation, context.client.run(insert.text, insert.parameters, insert.settings, context.query_id())
        )

    table, _ = await context.create_table(query.columns, shape, fill)
    return table


async def read_table(context: DataContext, relation: Relation, *, ordered: bool = True) -> tuple[pa.Table, Columns]:
    """Read a relation; returns its rows and their column types."""
    context.check_relation(relation)
    literal, columns = read_literal(relation), tuple(relation.schema.items())
    if literal is not None:
        return normalise(literal, columns), columns
    relation = await prepare_relation(context, relation)
    table, query = await _read_from_single_node(context, relation, ordered) or await _read_from(
        context, context.client, relation, ordered
    )
    return normalise(table, query.columns), query.columns


async def _read_from_single_node(
    context: DataContext, relation: Relation, ordered: bool
) -> tuple[pa.Table, CompiledQuery] | None:
    """Read rows from the one cluster node that has all of them; None if there is no such node."""
    if not isinstance(context.client.layout, ClusterLayout):
        return None
    try:
        located = await context.client.layout.find_single_node(relation)
        return None if located is None else await _read_from(context, *located, ordered)
    except ObjectNotFoundError:  # the Object was replaced meanwhile: read it through the Distributed table
        return None


async def _read_from(
    context: DataContext, client: ClickHouseClient, relation: Relation, ordered: bool
) -> tuple[pa.Table, CompiledQuery]:
    query = compile_query(relation, ordered=ordered, arrow=True)
    return await _explain_length_mismatch(context, relation, client.read_query(query, context.query_id())), query


async def read_batches(context: DataContext, relation: Relation) -> AsyncGenerator[pa.RecordBatch, None]:
    context.check_relation(relation)
    literal = read_literal(relation)
    if literal is not None:
        for batch in normalise(literal, tuple(relation.schema.items())).to_batches():
            yield batch
        return
    relation = await prepare_relation(context, relation)
    query = compile_query(relation, arrow=True)
    stream = context.client.read_batches(query, context.query_id())
    try:
        async for batch in stream:
            yield normalise_batch(batch, query.columns)
    finally:
        await stream.aclose()


async def _explain_length_mismatch(context: DataContext, relation: Relation, work: Awaitable[T]) -> T:
    try:
        return await work
    except QueryError as error:
        if LENGTH_MISMATCH not in error.what:
            raise
        shown = " and ".join(f"{length:,}" for length in await _count_member_rows(context, relation))
        raise LengthError(
            f"Objects of {shown} rows cannot be combined row by row.",
            remedy="Join them on a column, or slice them to one length.",
        ) from None


async def _count_member_rows(context: DataContext, relation: Relation) -> list[int]:
    """Return the lengths of the Objects that were combined row by row."""
    lengths: list[int] = []
    for zipped in _find_zips(relation):
        for member in zipped.members:
            compiler = Compiler()
            tree = compiler.count_rows(member)
            rows = await context.client.read_text(to_text(tree), compiler.parameters, query_id=context.query_id())
            lengths.append(rows.column(0)[0].as_py())
        if len(set(lengths)) > 1:
            return lengths
        lengths.clear()
    return lengths


def _find_zips(relation: Relation) -> list[Zip]:
    own = [relation] if isinstance(relation, Zip) else []
    return own + [zipped for inner in relation.inputs for zipped in _find_zips(inner)]


def is_table(relation: Relation) -> bool:
    """Whether the relation is one whole table."""
    return isinstance(relation, Scan) and relation == Scan(relation.table)


def strip_identity(relation: Relation) -> Relation:
    """Remove projections that change nothing."""
    while isinstance(relation, Project) and _is_identity(relation):
        relation = relation.input
    return relation


def _is_identity(relation: Project) -> bool:
    names = [name for name, _ in relation.columns]
    return names == list(relation.input.schema) and all(
        isinstance(n, Ref) and n.name == name for name, n in relation.columns
    )
