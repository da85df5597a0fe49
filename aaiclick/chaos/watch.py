"""What users see while things break: metrics, health and logs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from aaiclick.chaos import history

LOOK_SECONDS = 1.0
HEALTHY_SECONDS = 60.0
ANSWERS = (200, 503)
COUNTED = ("jobs_", "tasks_", "task_")
"""Metrics that PostgreSQL keeps: no restart of the API server may lower them."""

Sample = tuple[str, tuple[tuple[str, str], ...]]


class Watch:
    """Looks at the API server again and again: counters only rise, and health is 200 or 503."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30.0)
        self._counters: dict[Sample, float] = {}
        self.looks = 0
        self.findings: list[str] = []

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> bool:
        """Look once; whether the server says that all is well. One that is being killed says nothing."""
        try:
            health, metrics = await self._http.get("/health"), await self._http.get("/metrics")
        except httpx.TransportError:
            return False
        for answer in (health, metrics):
            if answer.status_code not in ANSWERS:
                self._find(f"{answer.url.path} answered {answer.status_code}: {answer.text[:200]}")
        if metrics.status_code == 200:
            self._compare(counters_of(metrics.text))
        self.looks += 1
        return health.status_code == 200

    def _compare(self, counters: dict[Sample, float]) -> None:
        for sample, value in counters.items():
            before = self._counters.get(sample, 0.0)
            if value < before:
                self._find(f"the counter {sample[0]} {dict(sample[1])} fell from {before:g} to {value:g}")
        self._counters |= counters

    def _find(self, finding: str) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    async def until_healthy(self) -> None:
        """When all has come to rest, health says so."""
        try:
            async with asyncio.timeout(HEALTHY_SECONDS):
                while not await self.look():  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            self._find(f"/health is not 200 within {HEALTHY_SECONDS:g} s after everything came to rest")

    async def close(self) -> None:
        await self._http.aclose()


def counters_of(text: str) -> dict[Sample, float]:
    """Counters of jobs and tasks, out of Prometheus' text format."""
    families: Any = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in families
        if family.type == "counter" and family.name.startswith(COUNTED)
        for sample in family.samples
    }


def missing_lines(directory: Path) -> list[str]:
    """Lines that tasks have printed and that their logs lack. Logs of HTTP workers, which move to the server, are not
    checked.
    """
    printed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in history.notes(directory, history.PRINTED):
        if Path(each["path"]).stem == str(each["task"]):
            printed[each["path"]].append(each)
    missing: list[str] = []
    for path, lines in printed.items():
        found = set(Path(path).read_text().splitlines()) if Path(path).exists() else set[str]()
        missing += [
            f"the log of task {each['task']} lacks {each['line']!r}" for each in lines if each["line"] not in found
        ]
    return missing
