"""Counters and cycles, without a database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaiclick.errors import CycleError
from aaiclick.store.plan import Known, NewGroup, NewTask, Plan, count, find_cycle, refuse_cycle


@pytest.mark.parametrize(
    ("plan", "known", "unmet", "open_", "opened", "completed", "followed"),
    [
        (Plan([NewTask(1, "a")]), Known(), {}, {}, set(), set(), set()),
        (Plan([NewTask(1, "a"), NewTask(2, "b")], (), [(1, 2)]), Known(), {2: 1}, {}, set(), set(), {1}),
        (Plan([NewTask(2, "b")], (), [(1, 2)]), Known({1: False}), {2: 1}, {}, set(), set(), {1}),
        (Plan([NewTask(2, "b")], (), [(1, 2)]), Known({1: True}), {}, {}, set(), set(), {1}),
        (Plan([NewTask(1, "a"), NewTask(2, "b")], (), [(1, 2), (1, 2)]), Known(), {2: 1}, {}, set(), set(), {1}),
        (Plan([], [NewGroup(9, "g")]), Known(), {}, {}, {9}, {9}, set()),
        (Plan([NewTask(1, "a", group_id=9)], [NewGroup(9, "g")]), Known(), {}, {9: 1}, {9}, set(), set()),
        (Plan([NewTask(1, "a")], [NewGroup(9, "g")], [(9, 1)]), Known(), {}, {}, {9}, {9}, set()),
        (Plan([NewTask(1, "a")], [NewGroup(9, "g")], [(1, 9)]), Known(), {9: 1}, {}, set(), set(), {1}),
        (
            Plan([NewTask(1, "a", group_id=8)], [NewGroup(9, "g"), NewGroup(8, "h", 9)]),
            Known(), {}, {9: 1, 8: 1}, {9, 8}, set(), set(),
        ),
        (
            Plan([NewTask(1, "a"), NewTask(2, "b", group_id=8)], [NewGroup(9, "g"), NewGroup(8, "h", 9)], [(1, 9)]),
            Known(), {9: 1, 8: 1}, {9: 1, 8: 1}, set(), set(), {1},
        ),
        (Plan([], [NewGroup(8, "h", 9)]), Known(groups={9: (False, False)}), {8: 1}, {9: 1}, set(), set(), set()),
        (Plan([], [NewGroup(8, "h", 9)]), Known(groups={9: (True, False)}), {}, {}, {8}, {8}, set()),
    ],
)  # fmt: skip
def test_counters(plan, known, unmet, open_, opened, completed, followed) -> None:
    counters = count(plan, known)
    assert {key: n for key, n in counters.unmet.items() if n} == unmet
    assert {key: n for key, n in counters.open.items() if n} == open_
    assert (counters.opened, counters.completed, counters.followed) == (opened, completed, followed)


@pytest.mark.parametrize(
    ("tasks", "groups", "edges", "cycle"),
    [
        ([(1, None), (2, None)], [], [(1, 2)], []),
        ([(1, None), (2, None)], [], [(1, 2), (2, 1)], [1, 2, 1]),
        ([(1, 9)], [(9, None)], [(9, 1)], [1, 9, 1]),
        ([(1, 9)], [(9, None)], [(1, 9)], [1, 9, 1]),
        ([(1, 8), (2, None)], [(9, None), (8, 9)], [(9, 2), (2, 1)], [1, 2, 8, 9]),
    ],
)
def test_cycles(tasks, groups, edges, cycle) -> None:
    found = find_cycle(tasks, groups, edges)
    assert set(found) == set(cycle)
    assert found[:1] == found[-1:]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30))))
def test_edges_that_only_lead_upwards_have_no_cycle(pairs: list[tuple[int, int]]) -> None:
    edges = [(low, high) for low, high in pairs if low < high]
    assert find_cycle([(n, None) for n in range(1, 31)], [], edges) == []
    if edges:
        low, high = edges[0]
        assert find_cycle([(n, None) for n in range(1, 31)], [], [*edges, (high, low)]) != []


def test_the_error_names_the_cycle() -> None:
    plan = Plan([NewTask(1, "a"), NewTask(2, "b")], (), [(1, 2), (2, 1)])
    with pytest.raises(CycleError, match=r"could never run: (load → clean → load|clean → load → clean)"):
        refuse_cycle(plan, {1: "load", 2: "clean"})
