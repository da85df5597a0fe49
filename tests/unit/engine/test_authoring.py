"""Authoring API: operators, arguments, decorators."""

from __future__ import annotations

import json
from typing import Any

import pytest

from aaiclick.errors import SubmitError
from aaiclick.orchestration import Group, Task, create_task, job, task
from aaiclick.orchestration.argument_serialisation import serialise_arguments
from aaiclick.orchestration.submit_plan import collect_unsubmitted, make_plan
from aaiclick.store.engine.result_placeholders import referenced_task_ids, resolve_placeholders


def named(*names: str) -> list[Task]:
    return [Task(name) for name in names]


def waits(node: Task | Group) -> set[str]:
    return {previous.name for previous in node.predecessors}


def test_chains_and_lists_on_both_sides() -> None:
    a, b, c, d, e = named("a", "b", "c", "d", "e")
    assert (a >> [b, c]) == [b, c]
    assert ([b, c] >> d) is d
    assert (e << d) is e
    assert [waits(node) for node in (a, b, c, d, e)] == [set(), {"a"}, {"a"}, {"b", "c"}, {"d"}]
    f, g, h = named("f", "g", "h")
    assert ([f, g] << h) == [f, g]
    f >> g >> a
    assert [waits(node) for node in (f, g, a)] == [{"h"}, {"h", "f"}, {"g"}]


def test_tasks_and_groups_mix() -> None:
    a, b = named("a", "b")
    outer = Group("outer")
    inner = Group("inner", [b], parent=outer)
    a >> outer >> Task("last")
    plan, _ = make_plan(collect_unsubmitted([inner]))
    assert {(group.name, group.parent_group_id) for group in plan.groups} == {("outer", None), ("inner", outer.id)}
    assert {t.entrypoint: t.group_id for t in plan.tasks} == {"a": None, "b": inner.id}
    assert plan.edges == [(a.id, outer.id)]


def test_a_node_lies_in_one_group() -> None:
    a = Task("a", group=Group("g"))
    with pytest.raises(SubmitError, match="is in Group"):
        Group("h").add(a)


def test_dependencies_must_be_nodes() -> None:
    with pytest.raises(SubmitError, match="cannot wait for"):
        Task("a").depends_on("b")  # pyright: ignore[reportArgumentType]


class FakeObject:
    table_id = "t1"

    def to_dict(self) -> dict[str, Any]:
        return {"object_type": "object", "table_id": self.table_id}


def test_arguments_are_json_references_or_results() -> None:
    upstream = Task("up")
    arguments = {"n": 1, "s": "x", "none": None, "list": [1.5, {"deep": upstream}], "object": FakeObject()}
    text, needed = serialise_arguments(arguments, "here")
    assert needed == [upstream]
    form = {"object_type": "task", "task_id": str(upstream.id)}
    object_form = {"object_type": "object", "table_id": "t1"}
    expected = {"n": 1, "s": "x", "none": None, "list": [1.5, {"deep": form}], "object": object_form}
    assert json.loads(text) == expected
    assert referenced_task_ids(json.loads(text)) == {upstream.id}
    assert resolve_placeholders(json.loads(text), {upstream.id: "result"})["list"] == [1.5, {"deep": "result"}]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "of type object"),
        ({1, 2}, "of type set"),
        ({"a": [b"x"]}, r"argument 'key'\['a'\]\[0\] is of type bytes"),
        ({1: 2}, "not a string"),
        (float("nan"), "is nan"),
        (Group("g"), "a group has no result"),
    ],
)
def test_other_argument_types_are_refused_with_key(value: Any, message: str) -> None:
    with pytest.raises(SubmitError, match=message) as caught:
        serialise_arguments({"key": value}, "Task('t')")
    assert "'key'" in caught.value.what


@task(retries=2, timeout_seconds=9, priority=3)
async def load(path: str) -> int:
    return len(path)


@task
def double(value: int, times: int = 2) -> int:
    return value * times


@job
def pipeline(path: str) -> None:
    double(load(path), times=3)


def test_arguments_wire_dependencies() -> None:
    nodes = pipeline.build("data.csv")
    plan, _ = make_plan(collect_unsubmitted(nodes))
    first, second = plan.tasks
    options = first.options
    assert (first.entrypoint, options.max_attempts, options.timeout_seconds, options.priority) == (
        f"{__name__}.load",
        3,
        9,
        3,
    )
    assert json.loads(first.kwargs) == {"path": "data.csv"}
    form = {"object_type": "task", "task_id": str(first.id)}
    assert json.loads(second.kwargs) == {"value": form, "times": 3}
    assert plan.edges == [(first.id, second.id)]
    assert load.function is not load


def test_invalid_call_is_refused_at_authoring() -> None:
    with pytest.raises(SubmitError, match="missing a required argument: 'path'"):
        load()  # pyright: ignore[reportCallIssue]


def test_non_importable_function_is_refused() -> None:
    with pytest.raises(SubmitError, match="cannot be run by another process"):
        create_task(lambda: None)
    assert create_task(json.dumps).entrypoint == "json.dumps"


def test_submitted_task_accepts_no_more_dependencies() -> None:
    a, b = named("a", "b")
    a.submitted = True
    with pytest.raises(SubmitError, match="submitted already"):
        b >> a
