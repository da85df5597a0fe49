"""Counters and cycles, without a database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaiclick.errors import CycleError
from aaiclick.store.engine.submission_plan import (
    ExistingNodes,
    NewGroup,
    NewTask,
    Plan,
    check_acyclic,
    compute_counters,
    find_cycle,
)


@pytest.mark.parametrize(
    ("plan", "existing", "unmet", "open_", "opened", "completed", "followed"),
    [
        (Plan([NewTask(1, "a")]), ExistingNodes(), {}, {}, set(), set(), set()),
        (Plan([NewTask(1, "a"), NewTask(2, "b")], (), [(1, 2)]), ExistingNodes(), {2: 1}, {}, set(), set(), {1}),
        (Plan([NewTask(2, "b")], (), [(1, 2)]), ExistingNodes({1: False}), {2: 1}, {}, set(), set(), {1}),
        (Plan([NewTask(2, "b")], (), [(1, 2)]), ExistingNodes({1: True}), {}, {}, set(), set(), {1}),
        (
            Plan([NewTask(1, "a"), NewTask(2, "b")], (), [(1, 2), (1, 2)]), ExistingNodes(), {2: 1}, {}, set(), set(),
            {1},
        ),
        (Plan([], [NewGroup(9, "g")]), ExistingNodes(), {}, {}, {9}, {9}, set()),
        (Plan([NewTask(1, "a", group_id=9)], [NewGroup(9, "g")]), ExistingNodes(), {}, {9: 1}, {9}, set(), set()),
        (Plan([NewTask(1, "a")], [NewGroup(9, "g")], [(9, 1)]), ExistingNodes(), {}, {}, {9}, {9}, set()),
        (Plan([NewTask(1, "a")], [NewGroup(9, "g")], [(1, 9)]), ExistingNodes(), {9: 1}, {}, set(), set(), {1}),
        (
            Plan([NewTask(1, "a", group_id=8)], [NewGroup(9, "g"), NewGroup(8, "h", 9)]),
            ExistingNodes(), {}, {9: 1, 8: 1}, {9, 8}, set(), set(),
        ),
        (
            Plan([NewTask(1, "a"), NewTask(2, "b", group_id=8)], [NewGroup(9, "g"), NewGroup(8, "h", 9)], [(1, 9)]),
            ExistingNodes(), {9: 1, 8: 1}, {9: 1, 8: 1}, set(), set(), {1},
        ),
        (
            Plan([], [NewGroup(8, "h", 9)]), ExistingNodes(groups={9: (False, False)}), {8: 1}, {9: 1}, set(), set(),
            set(),
        ),
        (Plan([], [NewGroup(8, "h", 9)]), ExistingNodes(groups={9: (True, False)}), {}, {}, {8}, {8}, set()),
    ],
)  # fmt: skip
def test_counters(plan, existing, unmet, open_, opened, completed, followed) -> None:
    counters = compute_counters(plan, existing)
    assert {key: n for key, n in counters.unmet.items() if n} == unmet
    assert {key: n for key, n in counters.open.items() if n} == open_
    assert (counters.opened, counters.completed, counters.with_dependents) == (opened, completed, followed)


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
    path = find_cycle(tasks, groups, edges)
    assert set(path) == set(cycle)
    assert path[:1] == path[-1:]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30))))
def test_edges_that_only_lead_upwards_have_no_cycle(pairs: list[tuple[int, int]]) -> None:
    edges = [(low, high) for low, high in pairs if low < high]
    assert find_cycle([(n, None) for n in range(1, 31)], [], edges) == []
    if edges:
        low, high = edges[0]
        assert find_cycle([(n, None) for n in range(1, 31)], [], [*edges, (high, low)]) != []


def test_the_error_names_the_cycle() -> None:
    plan = Plan([NewTask(1, "a"), NewTask(2, "b")], (), [(1, 2), (2, 1)])
    with pytest.raises(CycleError, match=r"form a cycle: (load → clean → load|clean → load → clean)"):
        check_acyclic(plan, {1: "load", 2: "clean"})
