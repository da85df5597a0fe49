"""Build the task graph of a job that was submitted as JSON."""

from __future__ import annotations

from typing import Any, cast

from aaiclick.api.jobs import JobRequest
from aaiclick.errors import SubmitError
from aaiclick.orchestration.graph import Group, Node, Task

REFERENCE_FIELDS = {"object_type", "task"}


def build_nodes(job: JobRequest) -> list[Node]:
    """Build the tasks and groups of a job; raises SubmitError for invalid keys and references."""
    if job.entrypoint is not None:
        return [Task(job.entrypoint, job.kwargs)]
    nodes: dict[str, Node] = {}
    for group in job.groups:
        _add_node(nodes, group.key, Group(group.name or group.key))
    for task in job.tasks:
        _add_node(nodes, task.key, Task(task.entrypoint, name=task.name or task.key, options=task.to_options()))
    for group in job.groups:
        node = cast("Group", nodes[group.key])
        if group.parent is not None:
            _get_group(nodes, group.parent, group.key).add(node)
        node.depends_on(*(_get_node(nodes, key, group.key) for key in group.depends_on))
    for task in job.tasks:
        node = cast("Task", nodes[task.key])
        if task.group is not None:
            _get_group(nodes, task.group, task.key).add(node)
        node.depends_on(*(_get_node(nodes, key, task.key) for key in task.depends_on))
        node.kwargs = {name: _resolve_references(value, nodes, task.key) for name, value in task.kwargs.items()}
    return list(nodes.values())


def _add_node(nodes: dict[str, Node], key: str, node: Node) -> None:
    if key in nodes:
        raise SubmitError(f"Two tasks or groups have the key {key!r}.", remedy="Give each a key of its own.")
    nodes[key] = node


def _get_node(nodes: dict[str, Node], key: str, referrer: str) -> Node:
    if key not in nodes:
        raise SubmitError(
            f"{referrer!r} refers to {key!r}, which is not a task or group of this job.", remedy="Correct the key."
        )
    return nodes[key]


def _get_group(nodes: dict[str, Node], key: str, referrer: str) -> Group:
    node = _get_node(nodes, key, referrer)
    if not isinstance(node, Group):
        raise SubmitError(f"{referrer!r} is in {key!r}, which is not a group.", remedy="Name one of 'groups'.")
    return node


def _resolve_references(value: object, nodes: dict[str, Node], referrer: str) -> Any:
    """Replace references to results in a value of kwargs by the tasks themselves."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if fields.get("object_type") == "task" and set(fields) == REFERENCE_FIELDS:
            return _get_node(nodes, str(fields["task"]), referrer)
        return {name: _resolve_references(item, nodes, referrer) for name, item in fields.items()}
    if isinstance(value, list):
        return [_resolve_references(item, nodes, referrer) for item in cast("list[Any]", value)]
    return value
