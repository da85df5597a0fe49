"""A diff as lines that people and programs read."""

from __future__ import annotations

from difflib import SequenceMatcher, unified_diff
from itertools import islice, takewhile, zip_longest

from aaiclick.catalog.dags.diff import DagDiff, FieldChange

WIDTH = 60
AROUND = 20
"""Characters of a long line that are shown before and after what changes in it."""

MAX_LINES = 5_000
MAX_COMPARED = 250_000
"""Pairs of lines that are compared; the comparison of two texts may look at each pair."""


def changes_of(found: DagDiff) -> list[dict[str, str]]:
    """One line per job, field and dataset."""
    lines = [("job", name, "added", "") for name in found.added]
    lines += [("job", name, "removed", "") for name in found.removed]
    for name, fields in [*found.changed.items(), ("", found.dag_fields)]:
        for each in fields:
            lines.append(("job" if name else "dag", name, each.field, _step(each)))
    for each in found.rebuilt:
        why = "" if each.why == "new" else f"because of {', '.join(each.because_of)}"
        change = "new" if each.why == "new" else "rebuilt"
        if each.dataset in found.there:
            change, why = "served again", "its rows are there, from an earlier version"
        lines.append(("dataset", each.dataset, change, why))
    lines += [("dataset", name, "no longer made", "") for name in found.dropped]
    return [{"what": what, "name": name, "change": change, "detail": detail} for what, name, change, detail in lines]


def diff_lines(current: str, other: str, other_name: str) -> list[str]:
    """The unified diff of two texts, at most MAX_LINES of it."""
    lines = unified_diff(current.splitlines(), other.splitlines(), "serves", other_name, lineterm="", n=3)
    return list(islice(lines, MAX_LINES))


def _step(change: FieldChange) -> str:
    """From what to what; of a text of several lines, the lines that differ."""
    before, after = _text(change.before), _text(change.after)
    old, new = before.splitlines(), after.splitlines()
    if change.before is None or change.after is None or max(len(old), len(new)) <= 1:
        return _pair(before, after)
    if len(old) * len(new) > MAX_COMPARED:
        return f"{len(old)} lines → {len(new)} lines"
    said: list[str] = []
    for kind, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for number, (gone, come) in enumerate(zip_longest(old[first:last], new[begin:end])):
            said.append(f"line {(begin if gone is None else first) + number + 1}: {_pair(_text(gone), _text(come))}")
    return "; ".join(said)


def _text(value: object) -> str:
    return "nothing" if value is None else str(value)


def _pair(before: str, after: str) -> str:
    """Two texts; of long ones, what differs."""
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))
    return f"{_short(before, same)} → {_short(after, same)}"


def _short(text: str, same: int) -> str:
    if len(text) <= WIDTH:
        return text
    start = max(0, min(same - AROUND, len(text) - WIDTH + 1))
    rest = text[start:] if len(text) - start < WIDTH else text[start : start + WIDTH - 2] + "…"
    return f"…{rest}" if start else rest
