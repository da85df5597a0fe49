"""Checks of metrics, health and logs during faults."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from aaiclick.chaos import history

CHECK_SECONDS = 1.0
HEALTHY_SECONDS = 60.0
VALID_STATUSES = (200, 503)
COUNTER_PREFIXES = ("jobs_", "tasks_", "task_")
"""Metrics stored in PostgreSQL: a restart of the API server must not lower them."""

Sample = tuple[str, tuple[tuple[str, str], ...]]


class ApiMonitor:
    """Polls the API server: counters must not decrease, and health must be 200 or 503."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30.0)
        self._counters: dict[Sample, float] = {}
        self.checks = 0
        self.findings: list[str] = []

    async def run(self) -> None:
        while True:
            await self.check_once()
            await asyncio.sleep(CHECK_SECONDS)

    async def check_once(self) -> bool:
        """Poll once; return whether the server is healthy. Connection errors are ignored: it may be killed."""
        try:
            health, metrics = await self._http.get("/health"), await self._http.get("/metrics")
        except httpx.TransportError:
            return False
        for answer in (health, metrics):
            if answer.status_code not in VALID_STATUSES:
                self._add_finding(f"{answer.url.path} answered {answer.status_code}: {answer.text[:200]}")
        if metrics.status_code == 200:
            self._compare_counters(parse_counters(metrics.text))
        self.checks += 1
        return health.status_code == 200

    def _compare_counters(self, counters: dict[Sample, float]) -> None:
        for sample, value in counters.items():
            before = self._counters.get(sample, 0.0)
            if value < before:
                self._add_finding(f"the counter {sample[0]} {dict(sample[1])} fell from {before:g} to {value:g}")
        self._counters |= counters

    def _add_finding(self, finding: str) -> None:
        if finding not in self.findings:
            self.findings.append(finding)

    async def wait_until_healthy(self) -> None:
        """Wait until the server is healthy after all work is done."""
        try:
            async with asyncio.timeout(HEALTHY_SECONDS):
                while not await self.check_once():  # noqa: ASYNC110
                    await asyncio.sleep(CHECK_SECONDS)
        except TimeoutError:
            self._add_finding(f"/health is not 200 within {HEALTHY_SECONDS:g} s after all work was done")

    async def close(self) -> None:
        await self._http.aclose()


def parse_counters(text: str) -> dict[Sample, float]:
    """Return the counters of jobs and tasks in Prometheus text format."""
    families: Any = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in families
        if family.type == "counter" and family.name.startswith(COUNTER_PREFIXES)
        for sample in family.samples
    }


def find_missing_lines(directory: Path) -> list[str]:
    """Return lines that tasks have printed and that are missing in their logs.

    Logs of HTTP workers, which move to the server, are not checked.
    """
    printed: dict[str, list[dict[str, object]]] = defaultdict(list)
    for entry in history.read_events(directory, history.PRINTED_LINES):
        if Path(entry["path"]).stem == str(entry["task"]):
            printed[entry["path"]].append(entry)
    missing: list[str] = []
    for path, lines in printed.items():
        logged = set(Path(path).read_text().splitlines()) if Path(path).exists() else set[str]()
        missing += [
            f"the log of task {entry['task']} lacks {entry['line']!r}" for entry in lines if entry["line"] not in logged
        ]
    return missing
