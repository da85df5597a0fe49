"""Templates: found once, escaped always; an unknown name is an error and not an empty place."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined

from aaiclick._version import __version__
from aaiclick.server.ui import static, words

FILTERS = (
    words.number, words.bounded, words.size, words.duration, words.ago, words.moment, words.pretty, words.first_line,
    words.state_name, words.look, words.job_state, words.task_state, words.progress, words.task_name,
)  # fmt: skip


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("aaiclick.server.ui", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    cast("dict[str, Any]", found.filters).update({function.__name__: function for function in FILTERS})
    cast("dict[str, Any]", found.globals).update({"asset": static.url, "version": __version__})
    return found


def render(template: str, **values: Any) -> str:
    return environment().get_template(template).render(values)
