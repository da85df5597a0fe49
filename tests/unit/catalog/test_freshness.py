"""Freshness policies and forecasts: due times across daylight saving time, states and causes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from aaiclick.catalog.dags.freshness import CRON_DAYS, to_cron_days
from aaiclick.catalog.dags.load import load_dag
from aaiclick.catalog.errors import DagError
from aaiclick.catalog.freshness_forecast import FreshnessForecaster
from aaiclick.store.catalog.freshness import DefinitionRun, FreshnessRow
from aaiclick.store.catalog.freshness_policy import FreshnessPolicy

NOW = datetime(2026, 3, 2, 5, 30, tzinfo=UTC)
WORKDAYS = FreshnessPolicy(by_time="07:00", timezone="Europe/Berlin", days="MON-FRI")


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("policy", "updated", "due"),
    [
        (FreshnessPolicy(max_age_seconds=7200), "2026-03-29T00:30", "2026-03-29T02:30"),
        (WORKDAYS, "2026-03-25T05:30", "2026-03-26T06:00"),  # before the deadline of Wednesday: due on Thursday
        (WORKDAYS, "2026-03-25T06:30", "2026-03-27T06:00"),  # after it: counts for Thursday
        (WORKDAYS, "2026-03-27T05:00", "2026-03-30T05:00"),  # over the weekend in which summer time begins
        (WORKDAYS, "2026-10-23T04:00", "2026-10-26T06:00"),  # and in which it ends
        (FreshnessPolicy(by_time="02:30", timezone="Europe/Berlin"), "2026-03-27T12:00", "2026-03-29T01:00"),  # gap
        (FreshnessPolicy(by_time="02:30", timezone="Europe/Berlin"), "2026-10-23T12:00", "2026-10-25T00:30"),  # twice
    ],
)
def test_next_update_is_due(policy, updated, due):
    assert policy.due_after(at(updated)) == at(due)


def test_first_update_is_due_by_the_first_deadline():
    assert WORKDAYS.first_due(at("2026-03-25T05:30")) == at("2026-03-25T06:00")


@pytest.mark.parametrize(
    ("days", "due"),
    [
        ("sat-sun", ["2026-03-07", "2026-03-08", "2026-03-14"]),
        ("fri-mon", ["2026-03-02", "2026-03-06", "2026-03-07"]),
        ("sun-mon", ["2026-03-02", "2026-03-08", "2026-03-09"]),
        ("wed,sat-sun", ["2026-03-04", "2026-03-07", "2026-03-08"]),
        ("mon-mon", ["2026-03-02", "2026-03-09", "2026-03-16"]),
        ("tue-mon", ["2026-03-02", "2026-03-03", "2026-03-04"]),
    ],
)
def test_days_may_go_over_the_weekend(days, due):
    policy = FreshnessPolicy(None, "07:00", "UTC", to_cron_days(days))
    monday = datetime(2026, 3, 2, 6, tzinfo=UTC)
    assert [f"{moment:%Y-%m-%d}" for moment in policy.deadlines().next_runs(monday, 3)] == due


def test_all_ranges_of_days_can_be_read():
    names = [day.lower() for day in CRON_DAYS]
    for days in (f"{first}-{last}" for first in names for last in names):
        assert FreshnessPolicy(None, "07:00", "UTC", to_cron_days(days)).deadlines()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("{}", "this one has neither"),
        ("{max_age: 2h, by: '07:00'}", "this one has both"),
        ("{max_age: 2h, days: mon-fri}", "days belongs to by."),
        ("{max_age: 99999999d}", "max_age is more than ten years."),
        ("{by: 7am}", "Use HH:MM, in quotes."),
        ("{by: '07:00', days: weekdays}", "Use days or ranges of days"),
        ("{by: '07:00', timezone: Berlin}", "There is no time zone 'Berlin'."),
    ],
)
def test_errors_of_policies_are_explained(policy, message):
    text = (
        "name: d\njobs:\n  - name: j\n    activation: source\n    operator: python\n    source: {kind: manual}\n"
        f"    outputs: [{{name: o, freshness: {policy}}}]\n    config: {{function: 'm:f'}}\n"
    )
    with pytest.raises(DagError) as raised:
        load_dag(text)
    (problem,) = raised.value.problems
    assert problem.position.line == 7
    assert message in f"{problem.what} {problem.remedy}"


ORDERS, TOTALS = uuid4(), uuid4()
NAMES = {str(ORDERS): "orders", str(TOTALS): "totals"}


def run(definition, minutes, *, status="COMPLETED", started=0, **changes):
    """A run that took some minutes, or an open one that began so many minutes ago (None: it waits)."""
    source = definition == "fetch"
    fields = {
        "definition_id": UUID(int=1 if source else 2), "dag": "shop", "job": definition,
        "activation": "source" if source else "reactive", "inputs": [] if source else [str(ORDERS)],
        "outputs": [str(ORDERS if source else TOTALS)], "next_run_at": None, "paused_at": None, "id": 1,
        "status": status, "created_at": NOW - timedelta(minutes=20), "started_at": NOW - timedelta(days=1),
        "completed_at": NOW - timedelta(days=1) + timedelta(minutes=minutes), "error": None,
    }  # fmt: skip
    if status in ("PENDING", "RUNNING"):
        fields |= {"completed_at": None, "started_at": None if started is None else NOW - timedelta(minutes=started)}
    return DefinitionRun(**fields | changes)


def judge(runs, due_minutes, dataset=TOTALS, names=NAMES, shows_errors=True):
    row = FreshnessRow(
        dataset, NAMES[str(dataset)], "shop", "totals", 7200, None, "UTC", "*", None,
        NOW + timedelta(minutes=due_minutes), NOW,
    )  # fmt: skip
    return FreshnessForecaster(runs, names, shows_errors=shows_errors).judge(row)


def test_dataset_will_be_late_by_the_medians_along_the_path():
    done = [run("fetch", 10), run("fetch", 30), run("fetch", 12), run("totals", 5)]
    runs = [run("fetch", 0, status="RUNNING", started=2), *done]
    assert judge(runs, 16).state == "fresh"  # 10 more minutes of fetch, then 5
    forecast = judge(runs, 14)
    assert (forecast.state, forecast.expected_at) == ("will be late", NOW + timedelta(minutes=15))
    assert forecast.causes == (
        "shop.totals waits for orders",
        "shop.fetch has run since 2026-03-02 05:28, usually 12 min",
    )


def test_late_dataset_names_the_first_cause():
    waiting = [run("fetch", 0, status="PENDING", started=None), run("totals", 5)]
    assert judge(waiting, -1).causes[-1] == "shop.fetch has waited for a worker since 2026-03-02 05:10"
    failed = [run("fetch", 3, status="FAILED", error="DataTestError: 3 rows failed"), run("totals", 5)]
    assert judge(failed, -1).causes[-1].endswith("failed at 2026-03-01 05:33: DataTestError: 3 rows failed")
    assert judge(failed, -1, shows_errors=False).causes[-1].endswith("failed at 2026-03-01 05:33")
    paused = [run("fetch", 3, paused_at=NOW), run("totals", 5, paused_at=NOW)]
    assert judge(paused, -1).causes == ("shop.totals is paused since 2026-03-02 05:30",)


def test_datasets_that_a_reader_may_not_read_are_not_named():
    forecast = judge([run("fetch", 3), run("totals", 5)], -1, names={str(TOTALS): "totals"})
    assert forecast.causes == ("shop.totals waits for a dataset that you may not read",)


def test_scheduled_run_is_expected():
    runs = [run("fetch", 10, next_run_at=NOW + timedelta(minutes=30)), run("totals", 5)]
    assert judge(runs, 60).expected_at == NOW + timedelta(minutes=45)
    assert judge(runs, 40).state == "will be late"
    assert judge([run("fetch", 10), run("totals", 5)], 40) == judge([run("fetch", 10), run("totals", 5)], 60)


def test_layers_of_datasets_are_judged_once_each():
    """Three datasets in each of 40 layers read all of the layer before: 3^40 paths."""
    layers = [[str(uuid4()) for _ in range(3)] for _ in range(40)]
    runs = [run("fetch", 10, outputs=layers[0], next_run_at=NOW)]
    for number, (inputs, outputs) in enumerate(pairwise(layers), start=3):
        runs.append(run("totals", 1, definition_id=UUID(int=number), inputs=inputs, outputs=outputs))
    runs.append(run("totals", 1, inputs=layers[-1]))
    assert judge(runs, 60).expected_at == NOW + timedelta(minutes=50)


def test_run_longer_than_the_median_is_expected_to_take_longer():
    done = [run("fetch", 10), run("fetch", 30), run("fetch", 12), run("totals", 5)]
    for minutes, expected in ((5, 12), (11, 15), (40, 15)):  # 12, 21 and 50 minutes of fetch, 5 of totals
        forecast = judge([run("fetch", 0, status="RUNNING", started=minutes), *done], 60)
        assert forecast.expected_at == NOW + timedelta(minutes=expected)
