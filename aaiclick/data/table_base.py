"""TableBase: arguments of the table methods of Object, resolved to expressions over one relation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from aaiclick.data.compile.join_columns import check_columns_exist
from aaiclick.data.compile.relation_nodes import Aggregate, Relation
from aaiclick.data.compile.row_alignment import align_rows
from aaiclick.data.errors import DataTypeError
from aaiclick.data.expressions.column import Column, expand_columns, output_name
from aaiclick.data.expressions.literals import literal_type
from aaiclick.data.expressions.nodes import (
    ExpressionNode,
    Literal,
    Ref,
    Scalar,
    bind_columns,
    substitute_columns,
)
from aaiclick.data.expressions.selectors import check_names, flatten_lists
from aaiclick.data.runtime.tables import Shape, check_column_names


class TableBase(ABC):
    """Base of the groups of table methods."""

    @property
    @abstractmethod
    def relation(self) -> Relation: ...

    @property
    @abstractmethod
    def shape(self) -> Shape: ...

    @abstractmethod
    def _derive_object(self, relation: Relation, shape: Shape = "table") -> Any: ...

    def _resolve_columns(
        self, columns: Sequence[object], named: Mapping[str, object]
    ) -> tuple[Relation, dict[str, ExpressionNode], list[tuple[str, ExpressionNode]]]:
        """Return a relation for this Object and all arguments, its own columns, and the arguments as nodes over it."""
        return self._resolve_arguments([*self._expand_columns(columns), *self._expand_named(named)])

    def _expand_columns(self, columns: Sequence[object]) -> list[tuple[str, object]]:
        """Return names and values of positional arguments; a selector is several, and lists are allowed."""
        expanded: list[tuple[str, object]] = []
        for value in flatten_lists(columns):
            column = Column(Ref(value)) if isinstance(value, str) else value
            if isinstance(column, Column):
                expanded += [(part.name, part) for part in expand_columns(column, self.relation.schema)]
            else:
                expanded.append((output_name(column), column))
        return expanded

    def _expand_named(self, named: Mapping[str, object]) -> list[tuple[str, object]]:
        expanded: list[tuple[str, object]] = []
        for name, value in named.items():
            parts = expand_columns(value, self.relation.schema) if isinstance(value, Column) else [value]
            if len(parts) != 1:
                raise DataTypeError(
                    f"{name}= is an expression over {len(parts)} columns.",
                    remedy="Pass it without a name, with .suffix(…).",
                )
            expanded.append((name, parts[0]))
        return expanded

    def _expand_names(self, names: Sequence[object], method: str) -> tuple[str, ...]:
        """Return the names of columns, given as names, lists of names, or selectors."""
        chosen: list[str] = []
        for value in flatten_lists(names):
            if isinstance(value, Column):
                parts = expand_columns(value, self.relation.schema)
                if not all(isinstance(part.node, Ref) for part in parts):
                    raise DataTypeError(f"{method} takes names of columns, not expressions.", remedy='For example "x".')
                chosen += [part.name for part in parts]
            else:
                chosen += check_names([value], method)
        check_columns_exist(chosen, self.relation.schema)
        return tuple(dict.fromkeys(chosen))

    def _resolve_arguments(
        self, arguments: Sequence[tuple[str, Any]]
    ) -> tuple[Relation, dict[str, ExpressionNode], list[tuple[str, ExpressionNode]]]:
        check_column_names(name for name, _ in arguments)
        objects = [value for _, value in arguments if is_object(value) and value.shape != "scalar"]
        base, (own, *maps) = align_rows([self.relation, *(obj.relation for obj in objects)])
        lowered = {id(obj): mapping for obj, mapping in zip(objects, maps, strict=True)}
        return (
            base,
            own,
            [(name, self._argument_node(value, own, lowered)) for name, value in arguments],
        )

    def _argument_node(
        self,
        value: Any,
        own: dict[str, ExpressionNode],
        lowered: dict[int, dict[str, ExpressionNode]],
    ) -> ExpressionNode:
        if isinstance(value, Column):
            return substitute_columns(bind_columns(value.node, self.relation.schema), own)
        if is_object(value):
            if value.shape in ("table", "record"):
                raise DataTypeError(
                    f"A table of columns {value.columns} was passed where one column is needed.",
                    remedy='Select one: obj["x"].',
                )
            return (
                next(iter(lowered[id(value)].values())) if id(value) in lowered else self._scalar_node(value.relation)
            )
        return Literal(value, literal_type(value))

    def _scalar_node(self, relation: Relation) -> ExpressionNode:
        """Return an aggregate of this Object's rows as an expression, any other scalar as a subquery."""
        if isinstance(relation, Aggregate) and not relation.keys:
            base, (own, other_columns) = align_rows([self.relation, relation.input])
            if base == self.relation:
                ((_, node),) = relation.values
                return substitute_columns(node, other_columns)
            del own
        return Scalar(relation)


def is_object(value: object) -> bool:
    return isinstance(value, TableBase)


def check_object(value: object, method: str) -> Any:
    """Return an Object; raise DataTypeError for anything else."""
    if not is_object(value):
        raise DataTypeError(
            f"{method} takes an Object, not {value!r:.60}.", remedy="Create one with create_object_from_value."
        )
    return value
