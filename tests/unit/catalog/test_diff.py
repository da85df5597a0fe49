"""Content hashes of versions, and diffs between them."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from aaiclick.catalog.dags.diff import DagDiff, FieldChange, Rebuild, diff_dags
from aaiclick.catalog.dags.diff_format import format_changes
from aaiclick.catalog.dags.hashing import canonical_dag, dataset_hashes, version_hash
from aaiclick.catalog.dags.json_schema import SCHEMA_FILE, format_json_schema
from aaiclick.catalog.dags.load import load_dag

SHOP = """
name: shop
defaults: {max_attempts: 5}
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {kind: cron, schedule: "@hourly"}
    outputs: [raw]
    config: {function: "shop.jobs:fetch"}
  - name: clean
    activation: reactive
    operator: sql
    outputs: [orders]
    config: {query: "SELECT id, amount, day FROM raw WHERE amount > 0"}
  - name: totals
    activation: reactive
    operator: sql
    outputs: [daily]
    config: {query: "SELECT day, sum(amount) AS total FROM orders GROUP BY day"}
  - name: customers
    activation: source
    operator: python
    source: {kind: manual}
    outputs: [people, people_log]
    config: {function: "shop.jobs:customers"}
  - name: joined
    activation: reactive
    operator: python
    inputs: [daily, people, {dataset: rates}]
    outputs: [report]
    config: {function: "shop.jobs:report"}
publish: [report]
"""


def changed(old, new, count=1):
    assert SHOP.count(old) == count
    return load_dag(SHOP.replace(old, new))


def rebuilds(before, after):
    return {rebuild.dataset: (rebuild.why, *rebuild.because_of) for rebuild in diff_dags(before, after).rebuilt}


BEFORE = load_dag(SHOP)


def test_equivalent_files_have_same_hash():
    other = load_dag(
        SHOP.replace("defaults: {max_attempts: 5}", "# five\ndefaults:\n    'max_attempts' : 0x5")
        .replace("outputs: [raw]", "outputs:\n      - name: raw")
        .replace('source: {kind: manual}', "source:\n      kind: manual\n    runtime: pool")
    )  # fmt: skip
    assert version_hash(other) == version_hash(BEFORE)
    assert diff_dags(BEFORE, other).is_empty


@given(st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_order_of_definitions_and_keys_keeps_hash(chance: random.Random):
    data = yaml.safe_load(SHOP)

    def shuffled(value):
        if not isinstance(value, dict):
            return value
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key]) for key in keys}

    jobs = [shuffled(job) for job in data["jobs"]]
    chance.shuffle(jobs)
    text = yaml.safe_dump(shuffled({**data, "jobs": jobs}), sort_keys=False)
    assert version_hash(load_dag(text)) == version_hash(BEFORE)


def test_a_change_of_one_line_of_sql_rebuilds_it_and_what_is_downstream():
    after = changed("amount > 0", "amount > 1")
    assert rebuilds(BEFORE, after) == {
        "orders": ("changed", "clean"), "daily": ("downstream", "clean"), "report": ("downstream", "clean"),
    }  # fmt: skip
    diff = diff_dags(BEFORE, after)
    assert set(diff.kept) == {"raw", "people", "people_log"}
    assert diff.changed == {
        "clean": (
            FieldChange(
                "config.query",
                "SELECT id, amount, day FROM raw WHERE amount > 0",
                "SELECT id, amount, day FROM raw WHERE amount > 1",
            ),
        )
    }


def test_two_changes_are_both_named_downstream():
    after = load_dag(SHOP.replace("amount > 0", "amount > 1").replace("jobs:customers", "jobs:customers2"))
    assert rebuilds(BEFORE, after)["report"] == ("downstream", "clean", "customers")
    assert rebuilds(BEFORE, after)["people_log"] == ("changed", "customers")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_attempts: 5", "max_attempts: 7"),
        ('"@hourly"', '"@daily"'),
        ("outputs: [orders]", "outputs: [orders]\n    scaling: {max_concurrency: 3}"),
        ("outputs: [orders]", "outputs: [orders]\n    runtime: dispatcher"),
        ("outputs: [orders]", "outputs: [{name: orders, description: tidy}]"),
        ("publish: [report]", "publish: [report, daily]"),
    ],
)
def test_runtime_settings_change_version_but_rebuild_nothing(old, new):
    after = changed(old, new)
    assert version_hash(after) != version_hash(BEFORE)
    assert rebuilds(BEFORE, after) == {}
    assert not diff_dags(BEFORE, after).is_empty


@pytest.mark.parametrize(
    ("old", "new", "rebuilt"),
    [
        (
            "outputs: [orders]",
            "outputs: [orders]\n    unique_key: [id]\n    update_strategy: append",
            "orders daily report",
        ),
        ("outputs: [orders]", "outputs: [orders]\n    execution_strategy: PerPartition", "orders daily report"),
        ("outputs: [orders]", "outputs: [{name: orders, partition_by: day}]", "orders daily report"),
        ("name: clean", "name: tidy", "orders daily report"),
        ("{dataset: rates}", "{dataset: prices}", "report"),
        ("outputs: [people, people_log]", "outputs: [people_log, people]", "report"),
        ("config: {function: \"shop.jobs:report\"}", "config: {function: \"shop.jobs:report\", version: 2}", "report"),
    ],
)  # fmt: skip
def test_change_of_config_rebuilds_outputs(old, new, rebuilt):
    assert set(rebuilds(BEFORE, changed(old, new))) == set(rebuilt.split())


def test_renamed_output_keeps_its_rows():
    diff = diff_dags(BEFORE, load_dag(SHOP.replace("report]", "summary]")))
    assert (diff.rebuilt, diff.dropped) == ((), ())


def test_reverting_restores_hashes():
    assert dataset_hashes(load_dag(SHOP)) == dataset_hashes(BEFORE)


def test_added_and_removed_definitions_are_diffed():
    smaller = load_dag(SHOP[: SHOP.index("  - name: customers")])
    diff = diff_dags(BEFORE, smaller)
    assert diff.removed == ("customers", "joined")
    assert diff.dropped == ("people", "people_log", "report")
    assert diff.rebuilt == ()
    back = diff_dags(smaller, BEFORE)
    assert back.added == ("customers", "joined")
    assert Rebuild("report", "joined", "new", ("customers", "joined")) in back.rebuilt


def test_the_first_deploy_builds_everything():
    diff = diff_dags(None, BEFORE)
    assert {rebuild.why for rebuild in diff.rebuilt} == {"new"}
    assert len(diff.rebuilt) == 6


def test_chain_of_thousand_definitions_is_diffed():
    def chain(first):
        jobs = [{"name": "j0", "activation": "source", "source": {"kind": "manual"}, "operator": "python",
                 "outputs": ["o0"], "config": {"function": first}}]  # fmt: skip
        jobs += [
            {"name": f"j{n}", "activation": "reactive", "operator": "python", "inputs": [f"o{n - 1}"],
             "outputs": [f"o{n}"], "config": {"function": "a:b"}}
            for n in range(1, 1000)
        ]  # fmt: skip
        return load_dag(json.dumps({"name": "chain", "jobs": jobs}))

    assert len(diff_dags(chain("a:b"), chain("a:c")).rebuilt) == 1000


def test_canonical_form_omits_defaults():
    assert "runtime" not in json.dumps(canonical_dag(BEFORE))


def test_published_schema_matches_model():
    assert SCHEMA_FILE.read_text(encoding="utf-8") == format_json_schema(), (
        "run python -m aaiclick.catalog.dags.json_schema"
    )


def test_the_schema_accepts_what_loads_and_refuses_a_misspelt_key():
    check = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))
    assert not list(check.iter_errors(yaml.safe_load(SHOP)))
    assert list(check.iter_errors(yaml.safe_load(SHOP.replace("outputs: [raw]", "output: [raw]"))))
    assert list(check.iter_errors(yaml.safe_load(SHOP.replace('query: "SELECT day', 'querry: "SELECT day'))))


LONG = (
    "SELECT day, sum(amount) AS total, count() AS orders FROM orders WHERE amount > 0 AND kind <> 'test' GROUP BY day"
)
LINES = "SELECT day,\n  sum(amount) AS total\nFROM orders\nWHERE id > 0\nGROUP BY day\n"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (3, 5, "3 → 5"),
        (None, "x", "nothing → x"),
        (
            LONG, LONG.replace("'test'", "'trial'"),
            "…ROM orders WHERE amount > 0 AND kind <> 'test' GROUP BY day → "
            "…OM orders WHERE amount > 0 AND kind <> 'trial' GROUP BY day",
        ),
        (LINES, LINES.replace("id > 0", "id > 1"), "line 4: WHERE id > 0 → WHERE id > 1"),
        (LINES, LINES.replace("FROM orders\n", ""), "line 3: FROM orders → nothing"),
        (LINES, LINES + "LIMIT 3\n", "line 6: nothing → LIMIT 3"),
        ("x" * 99 + "a" + "y" * 99, "x" * 99 + "b" + "z" * 99, f"…{'x' * 20}a{'y' * 37}… → …{'x' * 20}b{'z' * 37}…"),
    ],
)  # fmt: skip
def test_a_long_text_is_shown_where_it_changes(before, after, expected):
    change = FieldChange("config.query", before, after)
    (line,) = format_changes(DagDiff((), (), {"sums": (change,)}, (), (), (), ()))
    assert line["detail"] == expected
