"""Templates: found once, always escaped; nothing turns or hides text; an unknown name is an error, no empty place."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined

from aaiclick._version import __version__
from aaiclick.server.ui import static, words
from aaiclick.store import reads

FILTERS = (
    words.number, words.bounded, words.size, words.duration, words.ago, words.moment, words.pretty, words.first_line,
    words.state_name, words.look, words.job_state, words.task_state, words.source_state, words.progress, reads.began,
    words.worker_state, words.task_name, words.plain, words.listed, words.by_tasks,
)  # fmt: skip

FIRST = ("macros.html", "icons.html", "base.html", "sign_in.html", "overview.html", "chart.html")
PAUSE_SECONDS = 0.05


@cache
def environment() -> Environment:
    found = Environment(
        loader=PackageLoader("aaiclick.server.ui", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=words.seen,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    cast("dict[str, Any]", found.filters).update({function.__name__: function for function in FILTERS})
    found.filters["exact"] = found.filters["escape"]  # what a browser sends or copies: it is not passed to `seen`
    cast("dict[str, Any]", found.globals).update({"asset": static.url, "version": __version__})
    return found


def render(template: str, **values: Any) -> str:
    return environment().get_template(template).render(values)


def compile_first() -> None:
    """Make the templates ready that whoever comes first needs."""
    for name in FIRST:
        environment().get_template(name)


async def compile_all() -> None:
    """Make all of them ready, with pauses: nobody waits for the first use of one, nor for this."""
    for name in environment().list_templates():
        environment().get_template(name)
        await asyncio.sleep(PAUSE_SECONDS)
