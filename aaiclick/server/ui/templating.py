"""Jinja environment: always escapes, shows invisible characters, and raises on undefined names."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined

from aaiclick._version import __version__
from aaiclick.server.ui import filters, static_files
from aaiclick.store.engine import queries

FILTERS = (
    filters.format_number, filters.format_capped_count, filters.format_bytes, filters.format_duration,
    filters.format_relative_time, filters.format_utc_time, filters.format_json, filters.format_pairs,
    filters.error_headline, filters.state_name, filters.css_class, filters.job_state, filters.task_state,
    filters.source_state, filters.schedule_state, filters.worker_state, filters.task_name, filters.count_progress,
    filters.strip_ansi_codes, filters.split_at_task_ids, queries.last_run_started_at,
)  # fmt: skip

FIRST_TEMPLATES = ("macros.html", "icons.html", "base.html", "sign_in.html", "overview.html", "chart.html")
PAUSE_SECONDS = 0.05


@cache
def build_environment() -> Environment:
    jinja = Environment(
        loader=PackageLoader("aaiclick.server.ui", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=filters.escape_invisible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    cast("dict[str, Any]", jinja.filters).update({function.__name__: function for function in FILTERS})
    jinja.filters["exact"] = jinja.filters["escape"]  # values that a browser sends or copies must stay unchanged
    cast("dict[str, Any]", jinja.globals).update({"asset": static_files.static_url, "version": __version__})
    return jinja


def render_template(template: str, **values: object) -> str:
    return build_environment().get_template(template).render(values)


def compile_first() -> None:
    """Compile the templates that the first requests need."""
    for name in FIRST_TEMPLATES:
        build_environment().get_template(name)


async def compile_all() -> None:
    """Compile all templates in the background, with pauses for other requests."""
    for name in build_environment().list_templates():
        build_environment().get_template(name)
        await asyncio.sleep(PAUSE_SECONDS)
