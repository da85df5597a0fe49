"""Every operation of the public API is compared with Python or polars by the property tests.

The expressions of `tests/integration/data/comparisons.py` are built under a profiler, without a server; an operation
that is not called has no comparison.
"""

from __future__ import annotations

import sys
from inspect import isfunction
from types import SimpleNamespace

import aaiclick.data
from aaiclick.data import Column, GroupBy, Object, View, col
from aaiclick.data.expressions.aggregate_methods import AggregateMethods
from aaiclick.data.expressions.method_namespaces import (
    DateMethods,
    JsonMethods,
    ListMethods,
    MapMethods,
    StructMethods,
    TextMethods,
)
from aaiclick.data.expressions.operators import ExpressionMethods
from aaiclick.data.expressions.window_methods import WindowMethods
from aaiclick.data.fetch_methods import ReaderMethods
from aaiclick.data.join_methods import JoinMethods
from aaiclick.data.relational_methods import TableMethods
from aaiclick.data.reshape_methods import ReshapeMethods
from aaiclick.data.runtime.tables import Table
from aaiclick.data.time_groups import TimeGroupBy
from aaiclick.data.types import parse_type
from tests.integration.data import comparisons as c
from tests.integration.data.operation_cases import CASES

CONTEXT = SimpleNamespace(endpoint="here", is_open=True, lifecycle=SimpleNamespace(decref=lambda _: None))
CLASSES = (ExpressionMethods, AggregateMethods, WindowMethods, Column, TableMethods, JoinMethods, ReshapeMethods,
           Object, ReaderMethods, GroupBy, TimeGroupBy, View, DateMethods, JsonMethods, ListMethods, MapMethods,
           StructMethods, TextMethods)  # fmt: skip
BY_NAME = {*(f"ReaderMethods.{name}" for name in c.READS), "Object.chunks", "Object.materialize"}
"""Coroutines, which are listed by name since their bodies do not run here."""

COMPARED_ELSEWHERE = {
    "ReshapeMethods.explode": "test_exploded_lists",
    "ReshapeMethods.pivot": "test_pivot_equals_polars",
    "AggregateMethods.approx_nunique": "test_sketches_are_close_to_the_exact_values",
    "AggregateMethods.approx_quantile": "test_sketches_are_close_to_the_exact_values",
    "ListMethods.cosine_distance": "test_vector_distances",
    "ListMethods.l2_distance": "test_vector_distances",
    "ListMethods.dot": "test_vector_distances",
    "JsonMethods.decode": "test_json_is_decoded_to_a_type",
    "TimeGroupBy.having": "test_time_groups_have_no_having",
    "TableMethods.sample": "test_a_sample_is_some_of_the_rows_in_order",
    "JoinMethods.join_asof": "test_asof_joins",
    "ExpressionMethods.hash": "test_hash_differs_for_different_values",
    "View.view": "test_a_view_of_a_view_is_a_part_of_its_rows",
    "Object.insert": "test_appended_rows_come_last",
    "Object.describe": "test_summaries",
    "Object.correlation": "test_summaries",
}
NO_OPERATIONS = {
    "Object.store_literal",
    "ExpressionMethods.__bool__", "ExpressionMethods.__iter__", "Object.to_dict", "Object.sql", "Object.explain",
    "Object.tables", "View.to_dict", "ReaderMethods.export", "ReaderMethods.show", "ReaderMethods.rich",
    "ReaderMethods.html", "Object.__await__",
}  # fmt: skip
DUNDERS = {"__init__", "__repr__", "__hash__", "__getattr__"}
KINDS = {"INTEGERS": "Int64", "FREE": "Int64", "FLOATS": "Float64", "BOOLEANS": "Bool", "STRINGS": "String",
         "WORDED": "String", "DATED": "Date32", "TIMED": "DateTime64(6)", "SPANS": "Duration", "LISTS": "Array(Int64)",
         "MAPS": "Map(String, Int64)", "STRUCTS": "Tuple(x Int64, `a b\\`` String)", "JSONS": "String",
         "AGGREGATES": "Int64"}  # fmt: skip


def table(name, **columns):
    kinds = tuple((column, parse_type(dtype)) for column, dtype in columns.items())
    return Object.from_table(Table(name, kinds, "table", CONTEXT, counted=False))


def build_everything():
    for family, dtype in KINDS.items():
        obj = table("t1", a=dtype, b=dtype)
        for expression, _ in getattr(c, family).values():
            expression(col("a"), col("b"))
            if family not in ("FREE", "AGGREGATES"):
                expression(obj["a"], obj["b"])
    for expression, _ in c.WINDOWS.values():
        expression("a", "b")
    mixed = table("t2", a="Int64", b="Float64", t="String")
    for expression, _ in c.TABLES.values():
        expression(mixed, "a", "b", "t", 1, 2, 3)
    for expression, _ in c.GROUPS.values():
        expression(table("t3", k="Int64", v="Int64", b="Bool"), "k", "v", "b")
    numbers = {"k": "Nullable(Int64)", "v": "Nullable(Int64)", "x": "Float64"}
    obj = table("t6", **numbers, s="String", t="DateTime64(6)", b="Bool", l="Array(Int64)", z="Tuple(p Int64)")
    for operation, _ in CASES.values():
        operation(obj)
    for expression, _ in c.JOINS.values():
        expression(table("t4", k="Int64", x="Int64"), table("t5", k="Int64", y="Int64"))


def called_functions(work):
    """Return the qualified names of all functions that `work` called."""
    names = set()

    def record_call(frame, event, _):
        if event == "call":
            names.add(frame.f_code.co_qualname)

    sys.setprofile(record_call)
    try:
        work()
    finally:
        sys.setprofile(None)
    return names


def public_operations():
    methods = {
        f"{cls.__name__}.{name}"
        for cls in CLASSES
        for name, value in vars(cls).items()
        if isfunction(value) and name not in DUNDERS and (not name.startswith("_") or name.endswith("__"))
    }
    functions = {name for name in aaiclick.data.__all__ if getattr(aaiclick.data, name).__module__.endswith("column")}
    return methods | functions - {"Column"}


def test_every_operation_is_compared():
    assert (
        public_operations() - called_functions(build_everything) - BY_NAME - NO_OPERATIONS - COMPARED_ELSEWHERE.keys()
        == set()
    )


def test_operations_compared_elsewhere_have_tests():
    from tests.integration.data import test_operations, test_properties, test_views

    tests = {*vars(test_properties), *vars(test_operations), *vars(test_views)}
    assert [name for name in COMPARED_ELSEWHERE.values() if name not in tests] == []
    assert public_operations() >= COMPARED_ELSEWHERE.keys() | NO_OPERATIONS | {"Object.chunks", "Object.materialize"}
