"""A small typed client of the HTTP API, synchronous and asynchronous.

    with Client("https://aaiclick.example.org", key="aai_…") as client:
        job_id = client.create_job("nightly", "myapp.steps.load", {"day": "2026-11-15"})
        job = client.wait_for_job(job_id)

Errors are those of `aaiclick.errors`, by the code of the problem that the server answered.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aaiclick.client.asynchronous import AsyncClient
    from aaiclick.client.synchronous import Client

__all__ = ["AsyncClient", "Client"]

_PLACES = {"AsyncClient": "aaiclick.client.asynchronous", "Client": "aaiclick.client.synchronous"}


def __getattr__(name: str) -> Any:
    """httpx takes half a second to load: commands that speak to a database do without it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
