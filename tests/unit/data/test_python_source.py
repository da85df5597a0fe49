"""The representation of an expression is the Python text that builds it."""

from __future__ import annotations

from datetime import timedelta

import pytest

import aaiclick.data
from aaiclick.data import case, col

TEXTS = [
    'col("x")',
    'col("x") + 1',
    '(col("x") + 1) * 2',
    'col("x") + col("y") * 2',
    'col("x") - (col("y") - 1)',
    '-(col("x") + 1) ** 2',
    '~(col("x") > 1) & (col("s") == "a\\"b")',
    'col("x") // 2 % 3',
    '(col("x") > 1).if_else("a", None)',
    'col("x").fill_nan(0.5)',
    'col("x").sum() / length()',
    'col("x").cast("Int64")',
    'col("x").round(2)',
    'col("x").quantile(0.5)',
    'col("s").str.upper().str.contains("A")',
    'col("t").dt.year()',
    'col("t").dt.add(days=1)',
    'col("l").list.get(0)',
    'col("l").list.len()',
    'col("j").json.has("a")',
    'col("x").isin([1, 2])',
    'col("x").cum_sum()',
    'col("x").rolling("mean", 3)',
    'col("x").shift(1)',
    'col("x").sum().over(col("k"))',
    'col("x").rank()',
    'col("x").rank(dense=True, descending=True)',
    'col("x").rank().over(col("k"))',
    'col("x").percent_rank()',
    'col("x").percent_rank(descending=True).over(col("k"))',
    'col("x").ntile(4)',
    'col("x").ntile(4, descending=True)',
    'col("x").interpolate()',
    'col("x").forward_fill()',
    'col("x").backward_fill()',
    'col("x").backward_fill(2).over(col("k"))',
    'col("x").rolling("sum", "7200s", by=col("t"))',
    'col("x").rolling("mean", 5, by=col("y")).over(col("k"))',
    'col("x").sum().over(rows=(2, 1))',
    'col("x").first().over(col("k"), rows=(2, 0))',
    'col("x").sum().over(col("k"), rows=(None, None))',
    'col("x").sum().over(col("k"), order_by=col("t"), descending=True)',
    'col("x").sum().over(order_by=[col("t"), col("y")], descending=[True, False], rows=(1, 0))',
    'col("x").shift(1).over(order_by=col("t"))',
    'row_number().over(col("k"), order_by=col("t"), descending=True)',
    'col("x").cum_max().over(col("k"))',
    'col("x").count().over()',
    'col("x").first()',
    'col("x").filter(col("b")).sum()',
    'col("x").filter(col("b")).first()',
    'col("a", "b") * 2',
    'exclude("a").max()',
    'of_type("numeric")',
    "all_columns()",
    '1 - col("x")',
    "row_number()",
    "length()",
    "row_index()",
    "col(\"x\").alias('y')",
    "col(\"x\").sum().suffix('_sum')",
]
NAMES = {name: getattr(aaiclick.data, name) for name in aaiclick.data.__all__}


@pytest.mark.parametrize("text", TEXTS)
def test_an_expression_is_shown_as_it_is_written(text):
    expression = eval(text, NAMES)
    shown = repr(expression)
    rebuilt = eval(shown, NAMES)
    assert rebuilt.node == expression.node, shown
    if "fill_nan" not in text:
        assert shown == text


def test_expressions_without_a_text_of_their_own_are_shown():
    assert "lambda" in repr(col("l").list.map(lambda x: x + 1))
    assert repr(col("t") + timedelta(days=1)) == 'col("t") + datetime.timedelta(days=1)'
    assert "case" in repr(case((col("x") > 1, 2), otherwise=3))
