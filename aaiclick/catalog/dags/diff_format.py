"""Lines that describe a DAG diff, for people and programs."""

from __future__ import annotations

from difflib import SequenceMatcher, unified_diff
from itertools import islice, takewhile, zip_longest

from aaiclick.catalog.dags.diff import DagDiff, FieldChange

WIDTH = 60
AROUND = 20
"""Characters shown before and after a change in a long line."""

MAX_LINES = 5_000
MAX_COMPARED = 250_000
"""Most pairs of lines that are compared; the cost is quadratic."""


def format_changes(diff: DagDiff) -> list[dict[str, str]]:
    """Return one row per changed definition, field and dataset."""
    lines = [("job", name, "added", "") for name in diff.added]
    lines += [("job", name, "removed", "") for name in diff.removed]
    for name, fields in [*diff.changed.items(), ("", diff.dag_fields)]:
        for change in fields:
            lines.append(("job" if name else "dag", name, change.field, _format_change(change)))
    for rebuild in diff.rebuilt:
        why = "" if rebuild.why == "new" else f"because of {', '.join(rebuild.because_of)}"
        change = "new" if rebuild.why == "new" else "rebuilt"
        if rebuild.dataset in diff.there:
            change, why = "served again", "its rows are there, from an earlier version"
        lines.append(("dataset", rebuild.dataset, change, why))
    lines += [("dataset", name, "no longer made", "") for name in diff.dropped]
    return [{"what": what, "name": name, "change": change, "detail": detail} for what, name, change, detail in lines]


def diff_lines(current: str, other: str, other_name: str) -> list[str]:
    """Return the unified diff of two texts, at most MAX_LINES lines."""
    lines = unified_diff(current.splitlines(), other.splitlines(), "serves", other_name, lineterm="", n=3)
    return list(islice(lines, MAX_LINES))


def _format_change(change: FieldChange) -> str:
    """Describe the change of one field; of a multi-line text only the lines that differ."""
    before, after = _format_value(change.before), _format_value(change.after)
    old, new = before.splitlines(), after.splitlines()
    if change.before is None or change.after is None or max(len(old), len(new)) <= 1:
        return _format_pair(before, after)
    if len(old) * len(new) > MAX_COMPARED:
        return f"{len(old)} lines → {len(new)} lines"
    parts: list[str] = []
    for tag, first, last, begin, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        for number, (removed, added) in enumerate(zip_longest(old[first:last], new[begin:end])):
            line = (begin if removed is None else first) + number + 1
            parts.append(f"line {line}: {_format_pair(_format_value(removed), _format_value(added))}")
    return "; ".join(parts)


def _format_value(value: object) -> str:
    return "nothing" if value is None else str(value)


def _format_pair(before: str, after: str) -> str:
    """Format two values as `before → after`; long ones are cut to where they differ."""
    same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))
    return f"{_shorten(before, same)} → {_shorten(after, same)}"


def _shorten(text: str, same: int) -> str:
    if len(text) <= WIDTH:
        return text
    start = max(0, min(same - AROUND, len(text) - WIDTH + 1))
    rest = text[start:] if len(text) - start < WIDTH else text[start : start + WIDTH - 2] + "…"
    return f"…{rest}" if start else rest
