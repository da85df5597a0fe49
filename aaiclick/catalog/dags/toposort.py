"""Topological order and cycles of a graph of names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def find_cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return one shortest cycle for each strongly connected component (Tarjan's algorithm, iterative)."""
    position: dict[str, int] = {}
    lowest: dict[str, int] = {}
    component_stack: list[str] = []
    on_stack: set[str] = set()
    cycles: list[list[str]] = []
    for root in edges:
        if root in position:
            continue
        stack = [(root, iter(list(edges.get(root, ()))))]
        while stack:
            name, successors = stack[-1]
            if name not in position:
                position[name] = lowest[name] = len(position)
                component_stack.append(name)
                on_stack.add(name)
            successor = next(successors, None)
            if successor is not None:
                if successor not in position:
                    stack.append((successor, iter(list(edges.get(successor, ())))))
                elif successor in on_stack:
                    lowest[name] = min(lowest[name], position[successor])
                continue
            stack.pop()
            if stack:
                lowest[stack[-1][0]] = min(lowest[stack[-1][0]], lowest[name])
            if lowest[name] == position[name]:
                component = component_stack[component_stack.index(name) :]
                del component_stack[component_stack.index(name) :]
                on_stack.difference_update(component)
                if len(component) > 1 or name in edges.get(name, ()):
                    cycles.append(_shortest_cycle(component, edges))
    return cycles


def _shortest_cycle(component: list[str], edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a shortest path from the first name of the component back to itself."""
    members, first = set(component), component[0]
    predecessor: dict[str, str] = {}
    level = [first]
    while level:
        next_level: list[str] = []
        for name in level:
            for successor in edges.get(name, ()):
                if successor == first:
                    path = [name]
                    while path[-1] != first:
                        path.append(predecessor[path[-1]])
                    return path[::-1]
                if successor in members and successor not in predecessor:
                    predecessor[successor] = name
                    next_level.append(successor)
        level = next_level
    return component


def sort_topologically(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names so that each comes after the names it points to; the graph must be acyclic."""
    ordered: dict[str, None] = {}
    for root in edges:
        stack = [(root, iter(list(edges.get(root, ()))))]
        while stack:
            name, successors = stack[-1]
            successor = next(successors, None)
            if successor is None:
                ordered.setdefault(name)
                stack.pop()
            elif successor not in ordered:
                stack.append((successor, iter(list(edges.get(successor, ())))))
    return list(ordered)
