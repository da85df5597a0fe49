"""Row alignment of the operands of an expression.

Objects derived from the same rows by adding, dropping or computing columns share their rows, and an expression over
them needs no join. Other operands are zipped row by row.
"""

from __future__ import annotations

from collections.abc import Sequence

from aaiclick.data.compile.relation_nodes import Columns, Project, Relation, Zip
from aaiclick.data.expressions.nodes import ExpressionNode, Ref, substitute_columns

Mapping = dict[str, ExpressionNode]


def project_chain(relation: Relation) -> list[Relation]:
    """Return the relation and its ancestors with the same rows."""
    result = [relation]
    while isinstance(relation, Project):
        relation = relation.input
        result.append(relation)
    return result


def identity_mapping(relation: Relation) -> Mapping:
    return {name: Ref(name, dtype) for name, dtype in relation.schema.items()}


def lower_columns(relation: Relation, ancestor: Relation) -> Mapping:
    """Return the relation's columns as expressions over one of its ancestors."""
    if relation is ancestor or relation == ancestor:
        return identity_mapping(relation)
    if not isinstance(relation, Project):
        raise TypeError(relation)
    inner = lower_columns(relation.input, ancestor)
    return {name: substitute_columns(node, inner) for name, node in relation.columns}


def align_rows(relations: Sequence[Relation]) -> tuple[Relation, list[Mapping]]:
    """Return one relation with the rows of all, and the columns of each as expressions over it."""
    common = _common_ancestor(relations)
    if common is not None:
        return common, [lower_columns(relation, common) for relation in relations]
    members: list[Relation] = []
    for relation in relations:
        base = project_chain(relation)[-1]
        for member in base.members if isinstance(base, Zip) else (base,):
            if member not in members:
                members.append(member)
    zipped = Zip(tuple(members))
    return zipped, [_over_members(relation, zipped) for relation in relations]


def _common_ancestor(relations: Sequence[Relation]) -> Relation | None:
    other_chains = [project_chain(relation) for relation in relations[1:]]
    for candidate in project_chain(relations[0]):
        if all(any(candidate is other or candidate == other for other in ancestors) for ancestors in other_chains):
            return candidate
    return None


def _over_members(relation: Relation, zipped: Zip) -> Mapping:
    base = project_chain(relation)[-1]
    own = base.members if isinstance(base, Zip) else (base,)
    names: Mapping = {}
    for j, member in enumerate(own):
        i = zipped.members.index(member)
        for name, dtype in member.schema.items():
            names[f"{j}:{name}" if isinstance(base, Zip) else name] = Ref(f"{i}:{name}", dtype)
    return {name: substitute_columns(node, names) for name, node in lower_columns(relation, base).items()}


def as_columns(mapping: Mapping) -> Columns:
    return tuple(mapping.items())
