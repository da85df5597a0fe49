"""Names of the public data API are importable and documented."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import aaiclick.data
from aaiclick.data import Column, GroupBy, Object
from aaiclick.data.expressions.method_namespaces import (
    DateMethods,
    JsonMethods,
    ListMethods,
    MapMethods,
    StructMethods,
    TextMethods,
)

PAGE = Path(__file__).parents[3] / "docs" / "data.md"
NAMESPACES = (DateMethods, JsonMethods, ListMethods, MapMethods, StructMethods, TextMethods)


def public_names(cls):
    return [name for name, _ in inspect.getmembers(cls) if not name.startswith("_")]


def test_all_names_are_sorted_and_importable():
    assert aaiclick.data.__all__ == sorted(aaiclick.data.__all__, key=lambda name: (name.islower(), name))
    for name in aaiclick.data.__all__:
        assert hasattr(aaiclick.data, name)
    assert {"DataContext", "Object", "View", "LifecycleHandler", "LocalLifecycleHandler"} <= set(aaiclick.data.__all__)


def test_every_operation_is_documented_in_data_md():
    documented = set(re.findall(r"\w+", PAGE.read_text()))
    undocumented = {"from_table", "node", "name", "literal", "store_literal"}
    missing = (
        {name for cls in (Column, Object, GroupBy, *NAMESPACES) for name in public_names(cls)}
        - documented
        - undocumented
    )
    assert missing == set()


def test_public_classes_and_functions_have_docstrings():
    for name in aaiclick.data.__all__:
        assert inspect.getdoc(getattr(aaiclick.data, name)), name
