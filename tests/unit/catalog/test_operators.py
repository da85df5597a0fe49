"""The operator registry, and the pure part of the built-in operators."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.operators.alert_state import AlertState, evaluate_alert
from aaiclick.catalog.operators.config import BUILT_IN, Condition, FollowerConfig, default_registry
from aaiclick.catalog.operators.follower_state import FollowerState, advance_state, next_range, rewind_state
from aaiclick.catalog.operators.integer_ranges import (
    Aggregation,
    Range,
    absorb_ranges,
    merge_ranges,
    split_range,
    take_partial,
    take_whole,
)
from aaiclick.catalog.operators.registry import ENTRY_POINT_GROUP, OperatorConfig, OperatorDefinition, OperatorRegistry


class Settings(OperatorConfig):
    places: int


GEOCODE = OperatorDefinition("geocode", "places", Settings)
NOT_ONE = object()


def plug_in(name, value):
    return EntryPoint(name, f"{__name__}:{value}", ENTRY_POINT_GROUP)


def test_documented_operators_are_built_in():
    names = {"sql", "python", "range_aggregator", "range_splitter", "follower", "block_follower", "alert_evaluate"}
    assert names | {"http_fetch", "parquet_files", "postgres_read", "postgres_write"} <= set(
        default_registry().list_names()
    )
    assert len(BUILT_IN) == 11


def test_a_plug_in_is_found_by_its_entry_point():
    registry = OperatorRegistry(BUILT_IN, [plug_in("geocode", "GEOCODE")])
    assert registry.find("geocode") is GEOCODE
    assert "geocode" in registry.list_names()
    with pytest.raises(ValidationError):
        registry.find("geocode").settings({"places": "many"})


@pytest.mark.parametrize(
    ("offered", "message"),
    [
        ([], "no operator 'geocode'"),
        ([plug_in("geocode", "ABSENT")], "cannot be loaded"),
        ([plug_in("geocode", "NOT_ONE")], "not a definition"),
        ([plug_in("geocode", "GEOCODE"), plug_in("geocode", "NOT_ONE")], "several packages"),
    ],
)
def test_invalid_plug_in_is_reported(offered, message):
    with pytest.raises(OperatorError, match=message):
        OperatorRegistry(BUILT_IN, offered).find("geocode")


def test_block_follower_presets_follower_settings():
    config = {"tip": "chain:tip", "fetch": "chain:blocks"}
    follower = default_registry().find("block_follower").settings(config)
    assert isinstance(follower, FollowerConfig)
    assert follower.confirmations == 12
    mine = default_registry().find("block_follower").settings({**config, "confirmations": 3})
    assert isinstance(mine, FollowerConfig)
    assert mine.confirmations == 3


# Ranges

small = st.integers(-30, 60)
ranges = st.tuples(small, st.integers(0, 12)).map(lambda pair: Range(pair[0], pair[0] + pair[1]))


def positions(parts):
    return sorted(position for range_ in parts for position in range(range_.start, range_.end + 1))


@given(st.lists(ranges))
def test_merged_ranges_hold_the_same_positions_and_do_not_touch(parts):
    result = merge_ranges(parts)
    assert positions(result) == sorted(set(positions(parts)))
    assert all(after.start > before.end + 1 for before, after in pairwise(result))


@given(st.lists(st.lists(ranges, max_size=4), max_size=8), st.integers(1, 9), small, st.randoms(use_true_random=False))
def test_aggregator_emits_each_range_once_in_order(batches, size, start, chance):
    def run(batches):
        state, passed = Aggregation(start), []
        for batch in batches:
            taken, state = take_whole(absorb_ranges(state, batch), size, start)
            again, same = take_whole(absorb_ranges(state, batch), size, start)
            assert (again, same) == ([], state)
            passed += taken
        return state, passed

    state, passed = run(batches)
    assert Aggregation.from_json(state.to_json(), 99) == state
    assert all(len(range_) == size and (range_.start - start) % size == 0 for range_ in passed)
    assert [range_.start for range_ in passed] == [start + size * n for n in range(len(passed))]
    arrived = {position for batch in batches for position in positions(batch) if position >= start}
    assert arrived == set(positions(passed)) | set(positions(state.pending))
    shuffled = list(batches)
    chance.shuffle(shuffled)
    assert run(shuffled) == (state, passed)


@given(st.lists(ranges, max_size=6), st.integers(1, 9), small, st.integers(1, 3))
def test_take_whole_with_limit_gives_same_ranges(arrived, size, start, limit):
    state = absorb_ranges(Aggregation(start), arrived)
    all_at_once, end = take_whole(state, size, start)
    some = []
    while True:
        taken, state = take_whole(state, size, start, limit)
        some += taken
        if not taken:
            break
    assert (some, state) == (all_at_once, end)


def test_aggregator_waits_at_gap():
    state = absorb_ranges(Aggregation(0), [Range(0, 4), Range(10, 29)])
    taken, state = take_whole(state, 5)
    assert taken == [Range(0, 4)]
    taken, state = take_whole(absorb_ranges(state, [Range(5, 9)]), 5)
    assert taken == [Range(5, 9), Range(10, 14), Range(15, 19), Range(20, 24), Range(25, 29)]


def test_flush_partial_emits_incomplete_range():
    _, state = take_whole(absorb_ranges(Aggregation(0), [Range(0, 6), Range(9, 9)]), 5)
    assert take_partial(state) == ([Range(5, 6)], Aggregation(7, (Range(9, 9),)))
    assert take_partial(Aggregation(7, (Range(9, 9),)))[0] == []


@given(ranges, st.integers(1, 9), small)
def test_split_range_cuts_at_multiples(whole, size, origin):
    pieces = list(split_range(whole, size, origin))
    assert positions(pieces) == positions([whole])
    assert all(len(piece) <= size for piece in pieces)
    assert all((piece.start - origin) % size == 0 for piece in pieces[1:])


def test_an_empty_range_is_refused():
    with pytest.raises(ValueError, match="empty"):
        Range(3, 2)


# Followers


@pytest.mark.parametrize(
    ("cursor", "tip", "confirmations", "batch", "fetched"),
    [
        (0, 100, 0, 10, Range(0, 9)),
        (95, 100, 0, 10, Range(95, 100)),
        (95, 100, 3, 10, Range(95, 97)),
        (98, 100, 3, 10, None),
        (101, 100, 0, 10, None),
        (100, 100, 0, 10, Range(100, 100)),
        (0, -1, 0, 10, None),
    ],
)
def test_a_follower_stays_behind_the_end(cursor, tip, confirmations, batch, fetched):
    assert next_range(FollowerState(cursor), tip, confirmations, batch) == fetched


@given(st.lists(st.integers(0, 50), max_size=20), st.integers(0, 5), st.integers(1, 7))
def test_a_follower_fetches_every_position_once_in_order(tips, confirmations, batch):
    state, fetched = FollowerState(0), []
    for tip in tips:
        while (step := next_range(state, tip, confirmations, batch)) is not None:
            fetched += positions([step])
            state = advance_state(state, step, f"mark {step.end}", keep=4)
    assert fetched == list(range(len(fetched)))
    assert len(fetched) == max([0, *(tip - confirmations + 1 for tip in tips)])
    assert len(state.marks) <= 4
    assert FollowerState.from_json(state.to_json(), 7) == state


def test_rewritten_history_rewinds_to_newest_matching_mark():
    state = FollowerState(30, ((9, "a"), (19, "b"), (29, "c")))
    assert rewind_state(state, {9: "a", 19: "b", 29: "c"}, 0) == (state, None)
    assert rewind_state(state, {9: "a", 19: "b", 29: "x"}, 0) == (
        FollowerState(20, ((9, "a"), (19, "b"))),
        Range(20, 29),
    )
    assert rewind_state(state, {9: "a"}, 0) == (FollowerState(10, ((9, "a"),)), Range(10, 29))
    assert rewind_state(state, {}, 5) == (FollowerState(5), Range(5, 29))


def test_fetched_range_must_start_at_cursor():
    with pytest.raises(ValueError, match="is next"):
        advance_state(FollowerState(5), Range(6, 7), None, 4)


# Alerts


def run_alert(condition, values, missing="keep"):
    state, changes = AlertState(), []
    for value in values:
        state, transition = evaluate_alert(condition, state, value, missing)
        state = AlertState.from_json(state.to_json())
        changes.append({"raised": "R", "cleared": "C", None: "."}[transition])
    return "".join(changes)


@pytest.mark.parametrize(
    ("condition", "values", "changes"),
    [
        ({"comparison": ">", "threshold": 10}, [9, 10, 11, 12, 10, 11], "..R.CR"),
        ({"comparison": ">=", "threshold": 10}, [9, 10, 9], ".RC"),
        ({"comparison": "<", "threshold": 0}, [1, -1, 0], ".RC"),
        ({"comparison": "<=", "threshold": 0, "clear_threshold": 5}, [0, 3, 5, 6], "R..C"),
        ({"comparison": ">", "threshold": 10, "clear_threshold": 5}, [11, 9, 6, 11, 5, 6, 11], "R...C.R"),
        ({"comparison": ">", "threshold": 10, "for_evaluations": 3}, [11, 11, 9, 11, 11, 11], ".....R"),
        ({"comparison": ">", "threshold": 10, "clear_evaluations": 2}, [11, 1, 11, 1, 1], "R...C"),
        ({"comparison": ">", "threshold": 10, "for_evaluations": 2}, [11, None, 11, float("nan"), 1], "..R.C"),
    ],
)
def test_alerts_are_raised_and_cleared_without_flapping(condition, values, changes):
    assert run_alert(Condition(**condition), values) == changes


@pytest.mark.parametrize(("missing", "changes"), [("keep", "R.."), ("raise", "R.."), ("clear", "RC.")])
def test_missing_value_follows_policy(missing, changes):
    assert run_alert(Condition(comparison=">", threshold=1), [2, None, None], missing) == changes


@given(st.lists(st.floats(-20, 20), max_size=40))
def test_no_value_between_the_thresholds_changes_anything(values):
    condition = Condition(comparison=">", threshold=10, clear_threshold=5)
    state = AlertState()
    for value in values:
        before = state.raised
        state, transition = evaluate_alert(condition, state, value)
        assert (transition is not None) == (state.raised != before)
        if 5 < value <= 10:
            assert transition is None


def test_thresholds_that_cross_are_refused():
    with pytest.raises(ValidationError, match="clear_threshold must be at most threshold"):
        Condition(comparison=">", threshold=1, clear_threshold=2)
