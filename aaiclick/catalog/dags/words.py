"""A diff as lines that people and programs read."""

from __future__ import annotations

from aaiclick.catalog.dags.diff import DagDiff


def changes_of(found: DagDiff) -> list[dict[str, str]]:
    """One line per job, field and dataset."""
    lines = [("job", name, "added", "") for name in found.added]
    lines += [("job", name, "removed", "") for name in found.removed]
    for name, fields in [*found.changed.items(), ("", found.dag_fields)]:
        for each in fields:
            what = f"{_short(each.before)} → {_short(each.after)}"
            lines.append(("job" if name else "dag", name, each.field, what))
    for each in found.rebuilt:
        why = "" if each.why == "new" else f"because of {', '.join(each.because_of)}"
        lines.append(("dataset", each.dataset, "new" if each.why == "new" else "rebuilt", why))
    lines += [("dataset", name, "no longer made", "") for name in found.dropped]
    return [{"what": what, "name": name, "change": change, "detail": detail} for what, name, change, detail in lines]


def _short(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:59] + "…"
