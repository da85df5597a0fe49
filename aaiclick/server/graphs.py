"""From a job in JSON to the same graph that Python authors build."""

from __future__ import annotations

from typing import Any, cast

from aaiclick.errors import SubmitError
from aaiclick.orchestration.graph import Group, Node, Task
from aaiclick.server.shapes import Manner, NewJob

REFERENCE = {"object_type", "task"}


def nodes_of(job: NewJob) -> list[Node]:
    """The tasks and groups of a job; raises SubmitError that names what does not fit together."""
    if job.entrypoint is not None:
        return [Task(job.entrypoint, job.kwargs)]
    nodes: dict[str, Node] = {}
    for group in job.groups:
        _put(nodes, group.key, Group(group.name or group.key))
    for task in job.tasks:
        _put(nodes, task.key, Task(task.entrypoint, name=task.name or task.key, **_manner(task)))
    for group in job.groups:
        node = cast("Group", nodes[group.key])
        if group.parent is not None:
            _group(nodes, group.parent, group.key).add(node)
        node.depends_on(*(_find(nodes, key, group.key) for key in group.depends_on))
    for task in job.tasks:
        node = cast("Task", nodes[task.key])
        if task.group is not None:
            _group(nodes, task.group, task.key).add(node)
        node.depends_on(*(_find(nodes, key, task.key) for key in task.depends_on))
        node.kwargs = {name: _value(value, nodes, task.key) for name, value in task.kwargs.items()}
    return list(nodes.values())


def _manner(task: Manner) -> dict[str, Any]:
    return task.model_dump(include=set(Manner.model_fields), exclude_none=True)


def _put(nodes: dict[str, Node], key: str, node: Node) -> None:
    if key in nodes:
        raise SubmitError(f"Two tasks or groups have the key {key!r}.", remedy="Give each a key of its own.")
    nodes[key] = node


def _find(nodes: dict[str, Node], key: str, where: str) -> Node:
    if key not in nodes:
        raise SubmitError(
            f"{where!r} refers to {key!r}, which is no task or group of this job.", remedy="Correct the key."
        )
    return nodes[key]


def _group(nodes: dict[str, Node], key: str, where: str) -> Group:
    node = _find(nodes, key, where)
    if not isinstance(node, Group):
        raise SubmitError(f"{where!r} is in {key!r}, which is no group.", remedy="Name one of 'groups'.")
    return node


def _value(value: Any, nodes: dict[str, Node], where: str) -> Any:
    """A value of kwargs, with the task in the place of a reference to its result."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if fields.get("object_type") == "task" and set(fields) == REFERENCE:
            return _find(nodes, str(fields["task"]), where)
        return {name: _value(item, nodes, where) for name, item in fields.items()}
    if isinstance(value, list):
        return [_value(item, nodes, where) for item in cast("list[Any]", value)]
    return value
