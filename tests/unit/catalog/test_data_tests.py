"""Data tests in DAG files: positions of errors, canonical form, judged values."""

from __future__ import annotations

import pytest

from aaiclick.catalog.dags.data_tests import DataTestSpec, build_tests
from aaiclick.catalog.dags.hashing import dataset_hashes, version_hash
from aaiclick.catalog.dags.load import load_dag
from aaiclick.catalog.errors import DagError
from aaiclick.data.compile.data_test_queries import CheckedRows, FreshnessOf, RowCount, Unique
from aaiclick.data.expectations import between, unique
from aaiclick.errors import SubmitError
from aaiclick.orchestration import task

DAG = """name: shop
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {kind: manual}
    outputs:
      - name: orders
        tests:
          - TEST
    config: {function: "shop:fetch"}
"""


@pytest.mark.parametrize(
    ("test", "position", "message"),
    [
        ("uniqe: [id]", (10, 13), "Did you mean 'unique'?"),
        ("{unique: [id], not_null: [id]}", (10, 28), "The test has 2 keys: unique, not_null."),
        ("on_failure: warn", (10, 13), "The test has no key."),
        ("between: {column: euros}", (10, 22), "between has no bound."),
        ("between: {column: euros, low: 5, high: 1}", (10, 52), "high is less than low."),
        ("rows: {at_least: 1, on_failure: quarantine}", (10, 45), "none of them can be quarantined."),
        ("rows: {change: {from: 50%, against: last_99_runs}}", (10, 49), "Use last_1_runs to last_30_runs."),
        ("rows: {change: {from: half}}", (10, 35), "Use a percentage: -50%, 300%."),
        ("references: {customer: customers}", (10, 36), "Write dataset.column."),
        ("references: {parent: orders.id}", (10, 34), "The output refers to itself."),
        ("sql: DROP TABLE orders", (10, 18), "DROP is not a SELECT."),
        ("accepted: {column: state, values: []}", (10, 47), "The list is empty."),
        ("{between: {column: a, low: 1, on_failure: warn}, on_failure: block}", (10, 62), "on_failure is set twice."),
        ("freshness_of: {column: day, max_age: 2 hours}", (10, 50), "Use a number with a unit: 30s, 5m, 2h, 1d."),
        ("matches: {column: state, pattern: '(?=a)'}", (10, 47), "The pattern is not a regular expression (RE2):"),
        ("matches: {column: state, pattern: 'a)|(?:b'}", (10, 47), "unexpected ): a)|(?:b. Correct it."),
        ("{unique: [id], on_failure: explode}", (10, 40), "Available: 'block', 'quarantine', 'warn'."),
    ],
)  # fmt: skip
def test_errors_of_tests_have_line_and_column(test, position, message):
    with pytest.raises(DagError) as raised:
        load_dag(DAG.replace("TEST", test))
    (problem,) = raised.value.problems
    assert (problem.position.line, problem.position.column) == position
    assert message in f"{problem.what} {problem.remedy}"


def test_tests_change_the_version_and_not_the_dataset():
    before, after = load_dag(DAG.replace("TEST", "unique: id")), load_dag(DAG.replace("TEST", "not_null: id"))
    assert version_hash(before) != version_hash(after)
    assert dataset_hashes(before) == dataset_hashes(after)


def test_stored_form_of_a_test_is_the_test():
    spec = DataTestSpec.model_validate({"rows": {"change": {"from": "-50%", "against": "last_3_runs"}}})
    stored = DataTestSpec.model_validate(spec.model_dump(mode="json", exclude_defaults=True))
    assert build_tests([stored]) == build_tests([spec]) == (RowCount(None, None, -50.0, None, 3),)


@pytest.mark.parametrize(
    ("test", "value", "message"),
    [
        (RowCount(at_least=2), 1, "1 rows, fewer than 2"),
        (RowCount(at_most=2), 3, "3 rows, more than 2"),
        (RowCount(change_from=-50.0), 49, "49 rows, -51 % against the last 2 runs (100)"),
        (RowCount(change_from=-50.0), 50, None),
        (RowCount(change_to=100.0), 201, "201 rows, +101 % against the last 2 runs (100)"),
        (RowCount(change_to=0.0, last_runs=1), 150, None),
        (FreshnessOf("day", 60), 61, "the newest day is 61 s old, more than 60 s"),
        (FreshnessOf("day", 60), 60, None),
        (Unique(("id",)), 1, "1 row repeats the id of another row"),
    ],
)
def test_values_are_judged(test, value, message):
    assert test.judge_value(value, CheckedRows("t", ("id",), recent_rows=(150, 50))) == message


def test_columns_that_contain_the_key_need_no_other_rows():
    assert not Unique(("id", "day")).needs_remaining(("id",))
    assert Unique(("day",)).needs_remaining(("id",))
    assert Unique(("id",)).needs_remaining(())


def test_tests_of_a_task_are_refused_if_it_cannot_run_them():
    with pytest.raises(SubmitError, match="cannot quarantine rows"):
        task(tests=[unique("id", on_failure="quarantine")])(load_rows)
    with pytest.raises(SubmitError, match="is not a data test"):
        task(tests=["unique"])(load_rows)
    assert task(tests=[between("euros", low=0)])(load_rows).function.__wrapped__ is load_rows


def load_rows():
    return []
