"""Projection pushdown: remove columns that no later operation uses, so that subqueries do not list them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from aaiclick.data.compile.relation_nodes import (
    Aggregate,
    Columns,
    Concat,
    Distinct,
    Explode,
    Join,
    Project,
    Relation,
    Scan,
    Unary,
    Zip,
    iter_value_nodes,
)
from aaiclick.data.expressions.nodes import ExpressionNode, Ref, walk_nodes


def prune_columns(relation: Relation, used: frozenset[str] | None = None) -> Relation:
    """Return the relation with the `used` columns, all of them if None; nodes that need others keep them too."""
    if used is None:
        used = frozenset(relation.schema)
    if isinstance(relation, Scan):
        return _project_columns(relation, used)
    if isinstance(relation, Project):
        columns = _keep_columns(relation.columns, used)
        return Project(prune_columns(relation.input, _column_names(node for _, node in columns)), columns)
    if isinstance(relation, Aggregate):
        pruned = replace(relation, values=_keep_values(relation, used))
        return replace(pruned, input=prune_columns(relation.input, _column_names(iter_value_nodes(pruned))))
    if isinstance(relation, Join):
        return _prune_join(relation, used)
    if isinstance(relation, Zip):
        members = [
            prune_columns(member, frozenset(name for name in member.schema if f"{i}:{name}" in used))
            for i, member in enumerate(relation.members)
        ]
        return Zip(tuple(members))
    if isinstance(relation, Concat):
        return Concat(tuple(_project_columns(prune_columns(m, used), used) for m in relation.members))
    if isinstance(relation, Unary):
        needed = used | _column_names(iter_value_nodes(relation))
        if isinstance(relation, Distinct):
            needed |= frozenset(relation.subset)
        if isinstance(relation, Explode):
            needed |= frozenset(relation.names)
        return replace(relation, input=prune_columns(relation.input, needed))
    return relation


def _column_names(nodes: Iterable[ExpressionNode]) -> frozenset[str]:
    return frozenset(part.name for node in nodes for part in walk_nodes(node) if isinstance(part, Ref))


def _keep_columns(columns: Columns, used: frozenset[str]) -> Columns:
    return tuple((name, node) for name, node in columns if name in used) or columns[:1]


def _keep_values(relation: Aggregate, used: frozenset[str]) -> Columns:
    values = tuple((name, node) for name, node in relation.values if name in used)
    return values or (() if relation.keys else relation.values[:1])


def _project_columns(relation: Relation, used: frozenset[str]) -> Relation:
    names = [name for name in relation.schema if name in used] or list(relation.schema)[:1]
    if names == list(relation.schema):
        return relation
    return Project(relation, tuple((name, Ref(name, relation.schema[name])) for name in names))


def _prune_join(relation: Join, used: frozenset[str]) -> Relation:
    outputs = tuple(output for output in relation.outputs if output[0] in used) or relation.outputs[:1]
    left = {source for _, side, source in outputs if side in ("l", "k")} | {name for name, _ in relation.on}
    right = {source for _, side, source in outputs if side == "r"} | {name for _, name in relation.on}
    if relation.asof is not None:
        left.add(relation.asof[0])
        right.add(relation.asof[2])
    inputs = (prune_columns(relation.left, frozenset(left)), prune_columns(relation.right, frozenset(right)))
    return replace(relation, left=inputs[0], right=inputs[1], outputs=outputs)
