"""Which job needs which: order and cycles, for any names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def find_cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """One cycle for each knot of names that wait for each other, first name first; nothing recursive."""
    position: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    on_stack: set[str] = set()
    cycles: list[list[str]] = []
    for root in edges:
        if root in position:
            continue
        work = [(root, iter(list(edges.get(root, ()))))]
        while work:
            name, rest = work[-1]
            if name not in position:
                position[name] = lowest[name] = len(position)
                waiting.append(name)
                on_stack.add(name)
            following = next(rest, None)
            if following is not None:
                if following not in position:
                    work.append((following, iter(list(edges.get(following, ())))))
                elif following in on_stack:
                    lowest[name] = min(lowest[name], position[following])
                continue
            work.pop()
            if work:
                lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[name])
            if lowest[name] == position[name]:
                knot = waiting[waiting.index(name) :]
                del waiting[waiting.index(name) :]
                on_stack.difference_update(knot)
                if len(knot) > 1 or name in edges.get(name, ()):
                    cycles.append(_shortest(knot, edges))
    return cycles


def _shortest(knot: list[str], edges: Mapping[str, Iterable[str]]) -> list[str]:
    """A shortest way from the knot's first name back to it."""
    inside, first = set(knot), knot[0]
    came_from: dict[str, str] = {}
    border = [first]
    while border:
        following: list[str] = []
        for name in border:
            for each in edges.get(name, ()):
                if each == first:
                    way = [name]
                    while way[-1] != first:
                        way.append(came_from[way[-1]])
                    return way[::-1]
                if each in inside and each not in came_from:
                    came_from[each] = name
                    following.append(each)
        border = following
    return knot


def in_order(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Names so that each comes after those it points to; the graph has no cycle."""
    done: dict[str, None] = {}
    for root in edges:
        work = [(root, iter(list(edges.get(root, ()))))]
        while work:
            name, rest = work[-1]
            following = next(rest, None)
            if following is None:
                done.setdefault(name)
                work.pop()
            elif following not in done:
                work.append((following, iter(list(edges.get(following, ())))))
    return list(done)
