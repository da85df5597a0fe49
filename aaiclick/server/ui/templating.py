"""Jinja environment: always escapes, shows invisible characters, and raises on undefined names."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined

from aaiclick._version import __version__
from aaiclick.server.ui import static_files, template_filters
from aaiclick.store.engine import queries

FILTERS = (
    template_filters.format_number,
    template_filters.format_capped_count,
    template_filters.format_bytes,
    template_filters.format_duration,
    template_filters.format_relative_time,
    template_filters.format_utc_time,
    template_filters.format_json,
    template_filters.format_pairs,
    template_filters.error_headline,
    template_filters.state_name,
    template_filters.css_class,
    template_filters.job_state,
    template_filters.task_state,
    template_filters.source_state,
    template_filters.schedule_state,
    template_filters.worker_state,
    template_filters.task_name,
    template_filters.count_progress,
    template_filters.strip_ansi_codes,
    template_filters.split_at_task_ids,
    queries.last_run_started_at,
)

FIRST_TEMPLATES = ("macros.html", "icons.html", "base.html", "sign_in.html", "overview.html", "chart.html")
PAUSE_SECONDS = 0.05


@cache
def build_environment() -> Environment:
    jinja = Environment(
        loader=PackageLoader("aaiclick.server.ui", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=template_filters.escape_invisible,
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
