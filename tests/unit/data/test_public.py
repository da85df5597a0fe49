"""The public surface: what it is, that it is written down, and that examples run is shown elsewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import aaiclick.data
from aaiclick.data import Column, GroupBy, Object
from aaiclick.data.namespaces import DateMethods, JsonMethods, ListMethods, MapMethods, StructMethods, TextMethods

PAGE = Path(__file__).parents[3] / "docs" / "data.md"
NAMESPACES = (DateMethods, JsonMethods, ListMethods, MapMethods, StructMethods, TextMethods)


def public(kind):
    return [name for name, _ in inspect.getmembers(kind) if not name.startswith("_")]


def test_the_names_are_these():
    assert aaiclick.data.__all__ == sorted(aaiclick.data.__all__, key=lambda name: (name.islower(), name))
    for name in aaiclick.data.__all__:
        assert hasattr(aaiclick.data, name)
    assert {"DataContext", "Object", "View", "LifecycleHandler", "LocalLifecycleHandler"} <= set(aaiclick.data.__all__)


def test_every_operation_stands_on_the_page():
    words = set(re.findall(r"\w+", PAGE.read_text()))
    known_elsewhere = {"from_table", "node", "name"}
    missing = (
        {name for kind in (Column, Object, GroupBy, *NAMESPACES) for name in public(kind)} - words - known_elsewhere
    )
    assert missing == set()


def test_every_public_class_and_function_says_what_it_is():
    for name in aaiclick.data.__all__:
        assert inspect.getdoc(getattr(aaiclick.data, name)), name
