"""Names of polars and pandas are answered by the names that are used here."""

from __future__ import annotations

import copy
import pickle

import pytest

from aaiclick.data import col, method_hints
from aaiclick.data.errors import DataTypeError, UnknownMethodError
from aaiclick.data.grouping import GroupBy
from aaiclick.data.object import Object
from tests.unit.data.test_relation_compiler import table

X = col("x")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: X.fillna(0), "Expressions have no 'fillna'.\nUse fill_null(value)."),
        (lambda: X.is_in([1]), "Use isin("),
        (lambda: X.upper(), "Use .str.upper("),
        (lambda: X.year(), "Use .dt.year("),
        (lambda: X.sumn(), "Did you mean 'sum'?"),
        (lambda: X.str.to_uppercase(), "Text functions have no 'to_uppercase'.\nUse upper()"),
        (lambda: X.dt.dayofweek(), "Use weekday()"),
        (lambda: X.list.eval(), "Use map("),
        (lambda: X.map.getx("a"), "Map functions have no 'getx'.\nDid you mean 'get'?"),
        (lambda: table(x="Int64").groupby("x"), "Objects have no 'groupby'.\nUse group_by("),
        (lambda: table(x="Int64").x, 'Use obj["x"]'),
        (lambda: table(x="Int64").selekt("x"), "Did you mean 'select'?"),
        (lambda: table(x="Int64").group_by("x").size(), "Groups have no 'size'.\nUse len()"),
        (lambda: table(x="Int64").qqq, "dir(…) lists what there is"),
    ],
)
def test_unknown_methods_are_answered_by_a_hint(build, message):
    with pytest.raises(UnknownMethodError) as error:
        build()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: table(x="Int64").sort("x", ascending=False), "sort(…) has no argument ascending=.\nUse descending=."),
        (lambda: table(x="Int64").sort(by="x"), "Use names without by=."),
        (lambda: table(x="Int64").sample(frac=0.5), "Use fraction=."),
        (lambda: X.rank(order=1), "rank(…) has no argument order=.\nIts arguments are dense, descending."),
        (lambda: X.shift(1, 2), "shift(…): too many positional arguments.\nIts arguments are rows."),
        (lambda: X.str.split(), "split(…): missing a required argument: 'separator'."),
        (lambda: X.abs(1), "abs(…): too many positional arguments.\nIt takes none."),
    ],
)
def test_unknown_arguments_are_answered_by_a_hint(build, message):
    with pytest.raises(DataTypeError) as error:
        build()
    assert message in str(error.value)


def test_a_type_error_inside_of_a_method_stays():
    with pytest.raises(DataTypeError, match="The function of list"):
        X.list.map(lambda: 1)


def test_hints_name_no_existing_methods():
    assert not set(method_hints.EXPRESSION_HINTS) & set(dir(type(X)))
    assert not set(method_hints.OBJECT_HINTS) & set(dir(Object)) - {"values"}
    assert not set(method_hints.GROUP_HINTS) & set(dir(GroupBy))
    for hints, methods in (
        (method_hints.TEXT_HINTS, X.str),
        (method_hints.DATE_HINTS, X.dt),
        (method_hints.LIST_HINTS, X.list),
    ):
        assert not set(hints) & set(dir(methods))


def test_protocols_find_no_methods():
    assert not hasattr(X, "anything")
    assert repr(copy.copy(X)) == repr(X)
    assert repr(pickle.loads(pickle.dumps(X))) == repr(X)
