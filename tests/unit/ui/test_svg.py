"""Graph layout, collapsing of tasks, Gantt charts and charts."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from aaiclick.server.ui.svg import charts, gantt, job_graph
from aaiclick.server.ui.svg.collapse_tasks import collapse_tasks, collapse_types, find_critical_path, find_predecessors
from aaiclick.server.ui.svg.graph_layout import compute_layout

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BOX = (100.0, 30.0)


def task(
    number: int,
    task_type: str = "f",
    status: str = "COMPLETED",
    group: int | None = None,
    start: float = 0,
    took: float = 1,
):
    started_at = NOON + timedelta(seconds=start)
    is_finished = status not in ("PENDING", "RUNNING")
    return {
        "id": number, "type": task_type, "status": status, "group_id": group, "retrying": False, "created_at": NOON,
        "started_at": None if status == "PENDING" else started_at,
        "completed_at": started_at + timedelta(seconds=took) if is_finished else None,
    }  # fmt: skip


def test_layout_places_nodes_right_of_their_predecessors() -> None:
    placed = compute_layout(dict.fromkeys(range(1, 6), BOX), [(1, 2), (1, 3), (2, 4), (3, 4), (1, 5), (4, 5)])
    for a, b in ((1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (1, 5)):
        assert placed.nodes[a][0] + BOX[0] < placed.nodes[b][0]
    start, *_, end = placed.edges[1, 5]
    assert start == pytest.approx((placed.nodes[1][0] + BOX[0], placed.nodes[1][1] + BOX[1] / 2))
    assert end == pytest.approx((placed.nodes[5][0], placed.nodes[5][1] + BOX[1] / 2))
    assert len(placed.edges[1, 5]) == 4  # a long edge has a point in each column


@pytest.mark.parametrize("seed", range(5))
def test_layout_has_no_overlaps(seed: int) -> None:
    chance = random.Random(seed)
    sizes = {node: (chance.uniform(20, 200), chance.uniform(10, 90)) for node in range(60)}
    edges = [(a, b) for a in range(60) for b in range(a + 1, 60) if chance.random() < 0.05]
    placed = compute_layout(sizes, edges)
    boxes = [(x, y, x + sizes[node][0], y + sizes[node][1]) for node, (x, y) in placed.nodes.items()]
    for at, (left, top, right, bottom) in enumerate(boxes):
        assert left >= -0.01
        assert top >= -0.01
        assert right <= placed.width + 0.01
        assert bottom <= placed.height + 0.01
        for x, y, other_right, other_bottom in boxes[:at]:
            apart = left >= other_right - 0.01 or x >= right - 0.01 or top >= other_bottom - 0.01 or y >= bottom - 0.01
            assert apart


def test_layout_of_a_cycle_terminates() -> None:
    layout = compute_layout(dict.fromkeys((1, 2, 3), BOX), [(1, 2), (2, 3), (3, 1), (1, 1), (1, 99)])
    assert set(layout.nodes) == {1, 2, 3}
    assert compute_layout({}, []).width == 0


def test_layout_of_a_thousand_nodes_is_fast() -> None:
    chance = random.Random(1)
    edges = [(chance.randrange(max(0, node - 40), node), node) for node in range(1, 1_000) for _ in range(2)]
    started = time.process_time()
    placed = compute_layout(dict.fromkeys(range(1_000), BOX), edges)
    assert len(placed.nodes) == 1_000
    assert time.process_time() - started < 1.5  # ten times the duration in docs/ui.md


def test_similar_tasks_are_collapsed() -> None:
    tasks = [task(1, "split"), *(task(n, "chunk") for n in range(10, 30)), task(40, "join")]
    tasks[5] = task(14, "chunk", "FAILED")
    edges = [(1, n) for n in range(10, 30)] + [(n, 40) for n in range(10, 30)]
    folded = collapse_tasks(tasks, [], edges)
    assert sorted((unit.name, unit.total, unit.bad, unit.css_class) for unit in folded.units.values()) == [
        ("chunk", 20, 1, "failed"), ("join", 1, 0, "completed"), ("split", 1, 0, "completed"),
    ]  # fmt: skip
    assert folded.edges == {(1, 10), (10, 40)}
    chain = collapse_tasks([task(n) for n in range(1, 9)], [], list(pairwise(range(1, 9))))
    assert len(chain.units) == 8


def test_large_job_is_collapsed_by_type_with_sampled_edges() -> None:
    times = {"created_at": NOON, "started_at": NOON, "completed_at": NOON, "retrying": False}
    chunk = {"type": "chunk", "group_id": 7, **times}
    kinds = [
        {"first_id": 1, "type": "split", "group_id": None, "status": "COMPLETED", "count": 1, **times},
        {"first_id": 2, "status": "COMPLETED", "count": 90_000, **chunk},
        {"first_id": 3, "status": "RUNNING", "count": 10_000, **chunk, "completed_at": None},
    ]
    samples = [{"id": n, "type": "chunk", "group_id": 7} for n in (2, 3)] + [
        {"id": 1, "type": "split", "group_id": None}
    ]
    groups = [{"id": 7, "name": "g", "parent_group_id": None}]
    folded = collapse_types(kinds, samples, groups, [(1, 7), (2, 3), (99, 2)])
    assert folded.edges == {(1, 7)}
    assert folded.units[2].total == 100_000
    drawing = job_graph.draw_job(folded)
    assert [box.sub for box in drawing.boxes] == ["Completed", "×100,000, 90,000 done"]


def test_groups_are_drawn_open_and_collapsed() -> None:
    groups = [
        {"id": 100, "name": "outer", "parent_group_id": None},
        {"id": 101, "name": "inner", "parent_group_id": 100},
    ]
    tasks = [task(1), task(2, "a", group=100), task(3, "b", group=101), task(4, "c", group=101), task(5)]
    folded = collapse_tasks(tasks, groups, [(1, 100), (3, 4), (100, 5), (2, 101)])
    drawing = job_graph.draw_job(folded)
    assert {frame.name for frame in drawing.frames} == {"outer", "inner"}
    outer = next(frame for frame in drawing.frames if frame.name == "outer")
    inside = [box for box in drawing.boxes if box.id in (2, 3, 4)]
    assert all(outer.x < box.x and box.x + box.width < outer.x + outer.width for box in inside)
    assert all(outer.y < box.y and box.y + box.height < outer.y + outer.height for box in inside)
    shut = job_graph.draw_job(folded, shut={100})
    assert [(box.name, box.node_kind, box.sub) for box in shut.boxes][1] == ("outer", "group", "×3")
    assert job_graph.draw_job(folded, opened={100}, shut={101}).frames[0].name == "outer"


def test_critical_path_is_marked() -> None:
    tasks = [task(1, took=1), task(2, start=1, took=5), task(3, start=1, took=1), task(4, start=6, took=1)]
    folded = collapse_tasks(tasks, [], [(1, 2), (1, 3), (2, 4), (3, 4)])
    assert find_critical_path(folded, find_predecessors(folded)) == [1, 2, 4]
    chart = gantt.draw_gantt(folded, NOON + timedelta(seconds=7))
    assert [bar.critical for bar in chart.bars] == [True, True, False, True]
    assert chart.bars[3].title == "f: waited 0 ms, ran 1.0 s"
    assert gantt.draw_gantt(collapse_tasks([task(1, status="PENDING")], [], []), NOON).bars == []


def test_chart_axes_are_rounded() -> None:
    assert [charts.round_up_axis(value) for value in (0, 1, 3, 11, 480, 900)] == [1, 1, 4, 20, 500, 1000]
    assert [charts.round_up_axis(value, whole=True) for value in (0, 1, 3, 5, 11)] == [2, 2, 4, 6, 20]
    end = NOON + timedelta(hours=1)
    lines = charts.line_chart({"c1": [(NOON, 0.0), (end, 10.0), (end, None), (end, 5.0)]}, NOON, end)
    assert lines.lines[0].path == "M40.0 168.0L640.0 8.0M640.0 88.0"
    assert lines.xs[0][1] == "−60 min"
    bars = charts.bar_chart({(0, "COMPLETED"): 3, (0, "FAILED"): 1, (5, "RUNNING"): 2}, 60, NOON, end)
    assert [round(bar[3]) for bar in bars.bars] == [120, 40, 80]
    assert charts.bar_chart({}, 60, NOON, end).empty
    assert charts.sparkline([1.0]) == ("", "")
