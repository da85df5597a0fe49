"""Operators: the registry, and the pure part of what the built-in ones do."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aaiclick.catalog.errors import OperatorError
from aaiclick.catalog.operators.alerts import AlertState, evaluate
from aaiclick.catalog.operators.built_in import BUILT_IN, Condition, FollowerConfig, default_registry
from aaiclick.catalog.operators.following import FollowerState, advanced, next_range, rewound
from aaiclick.catalog.operators.ranges import (
    Aggregation,
    Range,
    absorb,
    covers,
    merged,
    missing,
    split,
    take_partial,
    take_whole,
)
from aaiclick.catalog.operators.registry import ENTRY_POINT_GROUP, Config, OperatorDefinition, Registry


class Settings(Config):
    places: int


GEOCODE = OperatorDefinition("geocode", "places", Settings)
NOT_ONE = object()


def plug_in(name, value):
    return EntryPoint(name, f"{__name__}:{value}", ENTRY_POINT_GROUP)


def test_the_operators_of_the_documents_are_there():
    names = {"sql", "python", "range_aggregator", "range_splitter", "follower", "block_follower", "alert_evaluate"}
    assert names | {"http_fetch", "parquet_files"} <= set(default_registry().names())
    assert len(BUILT_IN) == 9


def test_a_plug_in_is_found_by_its_entry_point():
    registry = Registry(BUILT_IN, [plug_in("geocode", "GEOCODE")])
    assert registry.find("geocode") is GEOCODE
    assert "geocode" in registry.names()
    with pytest.raises(ValidationError):
        registry.find("geocode").settings({"places": "many"})


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        ([], "no operator 'geocode'"),
        ([plug_in("geocode", "ABSENT")], "cannot be loaded"),
        ([plug_in("geocode", "NOT_ONE")], "not a definition"),
        ([plug_in("geocode", "GEOCODE"), plug_in("geocode", "NOT_ONE")], "more than once"),
    ],
)
def test_a_bad_plug_in_is_named(offered, said):
    with pytest.raises(OperatorError, match=said):
        Registry(BUILT_IN, offered).find("geocode")


def test_a_block_follower_is_a_follower_with_its_settings_chosen():
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
    return sorted(position for each in parts for position in range(each.start, each.end + 1))


@given(st.lists(ranges))
def test_merged_ranges_hold_the_same_positions_and_do_not_touch(parts):
    result = merged(parts)
    assert positions(result) == sorted(set(positions(parts)))
    assert all(after.start > before.end + 1 for before, after in pairwise(result))
    assert all(covers(result, position) == (position in set(positions(parts))) for position in range(-35, 80))


@given(st.lists(st.lists(ranges, max_size=4), max_size=8), st.integers(1, 9), small, st.randoms(use_true_random=False))
def test_what_an_aggregator_passes_on_is_whole_in_order_and_once_whatever_the_order_of_arrival(
    batches, size, start, chance
):
    def run(batches):
        state, passed = Aggregation(start), []
        for batch in batches:
            taken, state = take_whole(absorb(state, batch), size, start)
            again, same = take_whole(absorb(state, batch), size, start)
            assert (again, same) == ([], state)
            passed += taken
        return state, passed

    state, passed = run(batches)
    assert Aggregation.from_json(state.to_json(), 99) == state
    assert all(len(each) == size and (each.start - start) % size == 0 for each in passed)
    assert [each.start for each in passed] == [start + size * n for n in range(len(passed))]
    arrived = {each for batch in batches for each in positions(batch) if each >= start}
    assert arrived == set(positions(passed)) | set(positions(state.pending))
    shuffled = list(batches)
    chance.shuffle(shuffled)
    assert run(shuffled) == (state, passed)


@given(st.lists(ranges, max_size=6), st.integers(1, 9), small, st.integers(1, 3))
def test_taking_a_few_at_a_time_takes_the_same(arrived, size, start, limit):
    state = absorb(Aggregation(start), arrived)
    all_at_once, end = take_whole(state, size, start)
    some = []
    while True:
        taken, state = take_whole(state, size, start, limit)
        some += taken
        if not taken:
            break
    assert (some, state) == (all_at_once, end)


def test_an_aggregator_waits_at_a_hole_and_says_where():
    state = absorb(Aggregation(0), [Range(0, 4), Range(10, 29)])
    taken, state = take_whole(state, 5)
    assert taken == [Range(0, 4)]
    assert missing(state) == Range(5, 9)
    taken, state = take_whole(absorb(state, [Range(5, 9)]), 5)
    assert taken == [Range(5, 9), Range(10, 14), Range(15, 19), Range(20, 24), Range(25, 29)]
    assert missing(state) is None


def test_the_rest_is_passed_on_at_the_end_if_asked():
    _, state = take_whole(absorb(Aggregation(0), [Range(0, 6), Range(9, 9)]), 5)
    assert take_partial(state) == ([Range(5, 6)], Aggregation(7, (Range(9, 9),)))
    assert take_partial(Aggregation(7, (Range(9, 9),)))[0] == []


@given(ranges, st.integers(1, 9), small)
def test_pieces_of_a_range_are_the_range_cut_at_multiples(whole, size, origin):
    pieces = list(split(whole, size, origin))
    assert positions(pieces) == positions([whole])
    assert all(len(each) <= size for each in pieces)
    assert all((each.start - origin) % size == 0 for each in pieces[1:])


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
    state, seen = FollowerState(0), []
    for tip in tips:
        while (step := next_range(state, tip, confirmations, batch)) is not None:
            seen += positions([step])
            state = advanced(state, step, f"mark {step.end}", keep=4)
    assert seen == list(range(len(seen)))
    assert len(seen) == max([0, *(tip - confirmations + 1 for tip in tips)])
    assert len(state.marks) <= 4
    assert FollowerState.from_json(state.to_json(), 7) == state


def test_rewritten_history_is_taken_back_to_the_newest_mark_that_agrees():
    state = FollowerState(30, ((9, "a"), (19, "b"), (29, "c")))
    assert rewound(state, {9: "a", 19: "b", 29: "c"}, 0) == (state, None)
    assert rewound(state, {9: "a", 19: "b", 29: "x"}, 0) == (FollowerState(20, ((9, "a"), (19, "b"))), Range(20, 29))
    assert rewound(state, {9: "a"}, 0) == (FollowerState(10, ((9, "a"),)), Range(10, 29))
    assert rewound(state, {}, 5) == (FollowerState(5), Range(5, 29))


def test_a_range_out_of_turn_is_refused():
    with pytest.raises(ValueError, match="is next"):
        advanced(FollowerState(5), Range(6, 7), None, 4)


# Alerts


def run_alert(condition, values, missing="keep"):
    state, said = AlertState(), []
    for value in values:
        state, transition = evaluate(condition, state, value, missing)
        state = AlertState.from_json(state.to_json())
        said.append({"raised": "R", "cleared": "C", None: "."}[transition])
    return "".join(said)


@pytest.mark.parametrize(
    ("condition", "values", "said"),
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
def test_alerts_are_raised_and_cleared_without_flapping(condition, values, said):
    assert run_alert(Condition(**condition), values) == said


@pytest.mark.parametrize(("missing", "said"), [("keep", "R.."), ("raise", "R.."), ("clear", "RC.")])
def test_an_absent_value_means_what_was_asked_for(missing, said):
    assert run_alert(Condition(comparison=">", threshold=1), [2, None, None], missing) == said


@given(st.lists(st.floats(-20, 20), max_size=40))
def test_no_value_between_the_thresholds_changes_anything(values):
    condition = Condition(comparison=">", threshold=10, clear_threshold=5)
    state = AlertState()
    for value in values:
        before = state.raised
        state, transition = evaluate(condition, state, value)
        assert (transition is not None) == (state.raised != before)
        if 5 < value <= 10:
            assert transition is None


def test_thresholds_that_cross_are_refused():
    with pytest.raises(ValidationError, match="clear_threshold must be at most threshold"):
        Condition(comparison=">", threshold=1, clear_threshold=2)
