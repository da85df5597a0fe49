"""A worker that consists of plain HTTP requests, and helpers for its tasks."""

from __future__ import annotations

from typing import Any

from aaiclick.api.worker_protocol.endpoints import PREFIX


class HttpWorker:
    """A worker that consists of plain HTTP requests."""

    def __init__(self, site, role: str) -> None:
        self.client = site.as_(role)
        answer = self.post("workers/register", hostname="http-worker", pid=1)
        self.id = answer.json()["worker_id"]

    def post(self, path: str, **body: Any):
        """Send a request of the worker protocol; a path without a leading slash is relative to its prefix."""
        return self.client.post(path if path.startswith("/") else f"{PREFIX}/{path}", json=body)

    def claim(self, limit: int = 1, **more: Any) -> list[dict[str, Any]]:
        answer = self.post("tasks/claim", worker_id=self.id, limit=limit, lease_seconds=60, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()["tasks"]


def enqueue(site, queue: str, role: str = "writer", **item: Any) -> str:
    answer = site.as_(role).post("/v1/tasks", json={"items": [{"type": "t", "queue": queue, **item}]})
    assert answer.status_code == 201, answer.text
    return answer.json()["ids"][0]


def show(site, task_id: str) -> dict[str, Any]:
    return site.as_("reader").get(f"/v1/tasks/{task_id}").json()
