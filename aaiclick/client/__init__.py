"""Python client of the HTTP API, synchronous and asynchronous.

    with Client("https://aaiclick.example.org", key="aai_…") as client:
        created = client.create_job("nightly", "myapp.steps.load", {"day": "2026-11-15"})
        job = client.wait_for_job(created.id)

Methods return the models of `aaiclick.api`, listings iterators over them.

Errors are those of `aaiclick.errors`, chosen by the problem code of the response.

- `sync_client`: `Client`: runs the asynchronous client on a background event loop
- `job_handle`: handle of a job
- `async_job_handle`: handle of a job for `AsyncClient`
- `async_client`: `AsyncClient`
- `endpoints`: the methods of both clients by resource
- `endpoint_decorators`: the decorators of these methods
- `requests`: requests as data, and the errors of responses
- `tls`: TLS contexts

Next: aaiclick.server, which receives the requests.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aaiclick.client.async_client import AsyncClient
    from aaiclick.client.async_job_handle import AsyncJobHandle
    from aaiclick.client.job_handle import JobHandle
    from aaiclick.client.sync_client import Client

__all__ = ["AsyncClient", "AsyncJobHandle", "Client", "JobHandle"]

_MODULES = {
    "AsyncClient": "aaiclick.client.async_client",
    "Client": "aaiclick.client.sync_client",
    "AsyncJobHandle": "aaiclick.client.async_job_handle",
    "JobHandle": "aaiclick.client.job_handle",
}


def __getattr__(name: str) -> Any:
    """Import the clients lazily: httpx takes half a second to load, and commands on a local database do not need it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
