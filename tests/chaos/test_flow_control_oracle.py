"""The checks of waits, limits and schedules detect each violation, and accept a run without one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from aaiclick.chaos import flow_control_oracle, oracle
from aaiclick.chaos.result import CheckResult

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


@pytest.mark.parametrize(("ran", "count"), [([{"key": "j"}, {"key": "j"}], 0), ([], 1)])
def test_final_task_must_run(ran, count):
    records = [{"requested": "job", "key": "j", "finals": ["j"]}, {"acknowledged": "job", "key": "j"}]
    result = CheckResult()
    flow_control_oracle.check_finals(
        result, [*records, {"requested": "job", "key": "unanswered", "finals": ["u"]}], ran
    )
    assert len(result.lost) == count


@pytest.mark.parametrize(("numbers", "count"), [([1, 3], 0), ([4], 0), ([1, 2], 1), ([], 1)])
def test_last_debounced_payload_must_run(numbers, count):
    records = [{"acknowledged": "debounced", "key": "k", "number": number} for number in (1, 2, 3)]
    result = CheckResult()
    flow_control_oracle.check_debounced(result, records, [{"key": "k", "number": number} for number in numbers])
    assert len(result.lost) == count


@pytest.mark.parametrize(("numbers", "count"), [([1, 2, 3], 0), ([1, 3], 1), ([], 3)])
def test_every_merged_payload_must_run(numbers, count):
    records = [{"acknowledged": "merged", "key": "k", "number": number} for number in (1, 2, 3)]
    result = CheckResult()
    flow_control_oracle.check_merged(result, records, [{"key": "k", "number": number} for number in numbers])
    assert len(result.lost) == count


@pytest.mark.parametrize(("names", "count"), [(["a", "b"], 0), (["a", "a"], 1)])
def test_batch_has_each_item_once(names, count):
    result = CheckResult()
    flow_control_oracle.check_batches(result, [{"names": names}])
    assert len(result.duplicated) == count


@pytest.mark.parametrize(("gap", "count"), [(2.0, 0), (1.9, 1)])
def test_rate_holds_in_every_window(gap, count):
    """Twenty claims are allowed in 2 s; another organisation has its own."""
    claims = [("o", after(0.0))] * 20 + [("p", after(1.0)), ("o", after(gap))]
    result = CheckResult()
    flow_control_oracle.check_rates(result, claims)
    assert len(result.violated) == count


@pytest.mark.parametrize(
    ("runs", "lost", "duplicated"),
    [([(0, 1), (5, 1), (10, 1)], 0, 0), ([(0, 1), (10, 1)], 1, 0), ([(0, 1), (5, 2)], 0, 1)],
)
def test_each_nominal_time_has_one_run(runs, lost, duplicated):
    result = CheckResult()
    flow_control_oracle.check_schedules(result, [("s", after(seconds).isoformat(), count) for seconds, count in runs])
    assert (len(result.lost), len(result.duplicated)) == (lost, duplicated)


@pytest.mark.parametrize(("undone", "count"), [([2, 1], 0), ([2, 2, 1], 0), ([1, 2], 1), ([2], 1)])
def test_parallel_steps_are_undone_in_reverse_order_of_completion(undone, count):
    rows = {10 + number: {"status": "COMPLETED", "completed_at": after(number)} for number in (1, 2)}
    rows[13] = {"status": "FAILED", "completed_at": after(9)}
    steps = [{"key": "s", "number": number, "task": 10 + number} for number in (1, 2, 3)]
    result = CheckResult()
    oracle.check_sagas(result, steps, [{"key": "s", "number": number} for number in undone], rows)
    assert len(result.disordered) == count
