"""Every operation of the public API is compared with Python or polars by the property tests.

The tables of `tests/integration/data/comparisons.py` are built here under a profiler (no server is needed for that):
what none of them calls has no comparison.
"""

from __future__ import annotations

import sys
from inspect import isfunction
from types import SimpleNamespace

import aaiclick.data
from aaiclick.data import Column, GroupBy, Object, View, col
from aaiclick.data.expressive import Expressive
from aaiclick.data.namespaces import DateMethods, JsonMethods, ListMethods, MapMethods, StructMethods, TextMethods
from aaiclick.data.outputs import Outputs
from aaiclick.data.relational import Relational
from aaiclick.data.tables import Table
from aaiclick.data.types import parse_type
from tests.integration.data import comparisons as c

CONTEXT = SimpleNamespace(target="here", is_open=True, lifecycle=SimpleNamespace(decref=lambda _: None))
CLASSES = (Expressive, Column, Relational, Object, Outputs, GroupBy, View, DateMethods, JsonMethods, ListMethods,
           MapMethods, StructMethods, TextMethods)  # fmt: skip
BY_NAME = {*(f"Outputs.{name}" for name in c.READS), "Object.chunks", "Object.materialize"}
"""Awaited: nothing of them runs here, and the table has their names."""

ELSEWHERE = {
    "Relational.explode": "test_exploded_lists",
    "Relational.sample": "test_a_sample_is_some_of_the_rows_in_order",
    "Relational.join_asof": "test_asof_joins",
    "Expressive.hash": "test_a_hash_tells_values_apart",
    "Object.insert": "test_appended_rows_follow_the_others",
    "Object.describe": "test_summaries",
    "Object.correlation": "test_summaries",
}
NO_OPERATIONS = {
    "Expressive.__bool__", "Expressive.__iter__", "Object.to_dict", "Object.sql", "Object.explain",
    "Object.tables", "View.to_dict", "Outputs.export", "Outputs.show", "Outputs.rich", "Outputs.html",
    "Object.__await__",
}  # fmt: skip
DUNDERS = {"__init__", "__repr__", "__hash__"}
KINDS = {"INTEGERS": "Int64", "FREE": "Int64", "FLOATS": "Float64", "BOOLEANS": "Bool", "STRINGS": "String",
         "WORDED": "String", "DATED": "Date32", "TIMED": "DateTime64(6)", "LISTS": "Array(Int64)",
         "MAPS": "Map(String, Int64)", "STRUCTS": "Tuple(x Int64, `a b\\`` String)", "JSONS": "String",
         "AGGREGATES": "Int64"}  # fmt: skip


def table(name, **columns):
    kinds = tuple((column, parse_type(kind)) for column, kind in columns.items())
    return Object.from_table(Table(name, kinds, "table", CONTEXT, counted=False))


def build_everything():
    for family, kind in KINDS.items():
        obj = table("t1", a=kind, b=kind)
        for ours, _ in getattr(c, family).values():
            ours(col("a"), col("b"))
            if family not in ("FREE", "AGGREGATES"):
                ours(obj["a"], obj["b"])
    for ours, _ in c.WINDOWS.values():
        ours("a", "b")
    mixed = table("t2", a="Int64", b="Float64", t="String")
    for ours, _ in c.TABLES.values():
        ours(mixed, "a", "b", "t", 1, 2, 3)
    for ours, _ in c.GROUPS.values():
        ours(table("t3", k="Int64", v="Int64", b="Bool"), "k", "v", "b")
    for ours, _ in c.JOINS.values():
        ours(table("t4", k="Int64", x="Int64"), table("t5", k="Int64", y="Int64"))


def called(work):
    """The qualified names of all functions that ran."""
    names = set()

    def see(frame, event, _):
        if event == "call":
            names.add(frame.f_code.co_qualname)

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return names


def operations():
    methods = {
        f"{kind.__name__}.{name}"
        for kind in CLASSES
        for name, value in vars(kind).items()
        if isfunction(value) and name not in DUNDERS and (not name.startswith("_") or name.endswith("__"))
    }
    functions = {name for name in aaiclick.data.__all__ if getattr(aaiclick.data, name).__module__.endswith("column")}
    return methods | functions - {"Column"}


def test_every_operation_is_compared():
    assert operations() - called(build_everything) - BY_NAME - NO_OPERATIONS - ELSEWHERE.keys() == set()


def test_what_is_compared_elsewhere_is_there():
    from tests.integration.data import test_properties

    assert [name for name in ELSEWHERE.values() if not hasattr(test_properties, name)] == []
    assert operations() >= ELSEWHERE.keys() | NO_OPERATIONS | {"Object.chunks", "Object.materialize"}
