"""A small typed client of the HTTP API, synchronous and asynchronous.

    with Client("https://aaiclick.example.org", key="aai_…") as client:
        job_id = client.create_job("nightly", "myapp.steps.load", {"day": "2026-11-15"})
        job = client.wait_for_job(job_id)

Errors are those of `aaiclick.errors`, by the code of the problem that the server answered.
"""

from __future__ import annotations

from aaiclick.client.asynchronous import AsyncClient
from aaiclick.client.synchronous import Client

__all__ = ["AsyncClient", "Client"]
