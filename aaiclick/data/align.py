"""Which rows belong together.

Two Objects made from the same rows by adding, dropping or computing columns are the same rows: an expression over both
needs no join. Otherwise they are put side by side row by row.
"""

from __future__ import annotations

from collections.abc import Sequence

from aaiclick.data.nodes import Node, Ref, substitute
from aaiclick.data.relations import Columns, Project, Relation, Zip

Mapping = dict[str, Node]


def chain(relation: Relation) -> list[Relation]:
    """The relation and everything below it that has the same rows."""
    result = [relation]
    while isinstance(relation, Project):
        relation = relation.input
        result.append(relation)
    return result


def identity(relation: Relation) -> Mapping:
    return {name: Ref(name, kind) for name, kind in relation.schema.items()}


def lower(relation: Relation, ancestor: Relation) -> Mapping:
    """The relation's columns as expressions over an ancestor in its chain."""
    if relation is ancestor or relation == ancestor:
        return identity(relation)
    if not isinstance(relation, Project):
        raise TypeError(relation)
    inner = lower(relation.input, ancestor)
    return {name: substitute(node, inner) for name, node in relation.columns}


def align(relations: Sequence[Relation]) -> tuple[Relation, list[Mapping]]:
    """One relation with the rows of all, and the columns of each as expressions over it."""
    common = _common_ancestor(relations)
    if common is not None:
        return common, [lower(each, common) for each in relations]
    members: list[Relation] = []
    for relation in relations:
        base = chain(relation)[-1]
        for member in base.members if isinstance(base, Zip) else (base,):
            if member not in members:
                members.append(member)
    zipped = Zip(tuple(members))
    return zipped, [_over_members(each, zipped) for each in relations]


def _common_ancestor(relations: Sequence[Relation]) -> Relation | None:
    others = [chain(each) for each in relations[1:]]
    for candidate in chain(relations[0]):
        if all(any(candidate is each or candidate == each for each in other) for other in others):
            return candidate
    return None


def _over_members(relation: Relation, zipped: Zip) -> Mapping:
    base = chain(relation)[-1]
    own = base.members if isinstance(base, Zip) else (base,)
    names: Mapping = {}
    for j, member in enumerate(own):
        i = zipped.members.index(member)
        for name, kind in member.schema.items():
            names[f"{j}:{name}" if isinstance(base, Zip) else name] = Ref(f"{i}:{name}", kind)
    return {name: substitute(node, names) for name, node in lower(relation, base).items()}


def as_columns(mapping: Mapping) -> Columns:
    return tuple(mapping.items())
