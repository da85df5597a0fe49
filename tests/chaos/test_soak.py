"""Trends of a soak test, and one short soak. `make soak` runs the long one."""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import random
import time
from dataclasses import dataclass
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner

from aaiclick.chaos.load_clients import BacklogLimiter
from aaiclick.chaos.soak import METRIC_LIMITS, MIN_SECONDS, SoakResult, _sample_processes, anonymous_bytes, fit_trends
from aaiclick.cli import chaos
from tests.fork_server import FORK_SERVER


@dataclass
class Worker:
    """A program of one process."""

    number: int
    pid: int
    name = "worker"

    def processes(self):
        return [psutil.Process(self.pid)] if self.pid else []


def samples(metric, value, count=100):
    return [(10.0 * n, {(metric, "it"): value(n)}) for n in range(count)]


@pytest.mark.parametrize("metric", METRIC_LIMITS)
def test_growth_is_detected_and_noise_is_not(metric):
    rng = random.Random(1)
    level = 4 * METRIC_LIMITS[metric].more + 10
    [flat] = fit_trends(samples(metric, lambda _: level * rng.uniform(0.8, 1.2)))
    assert not flat.grows
    [growing] = fit_trends(samples(metric, lambda n: level * (1 + n / 10) * rng.uniform(0.8, 1.2)))
    assert growing.grows
    assert growing.per_hour == pytest.approx(36 * level, rel=0.1)


def test_growth_during_warm_up_is_ignored():
    [filled] = fit_trends(samples("memory", lambda n: 100.0 + 5 * min(n, 35)))
    assert not filled.grows


def test_short_lived_process_has_no_trend():
    points = samples("memory", lambda _: 100.0)
    points[-1] = points[-1][0], {("memory", "another"): 1e6}
    assert fit_trends(points) == []


def test_replaced_process_counts_in_its_role():
    environment = SimpleNamespace(
        workers=[Worker(1, os.getpid())], server=Worker(2, 0), servers=SimpleNamespace(pids=dict)
    )
    before = _sample_processes(environment)
    environment.workers = [Worker(3, os.getpid())]
    after = _sample_processes(environment)
    roles = {("memory", "each worker supervisor"), ("file handles", "each worker supervisor")}
    assert set(before) & set(after) == roles


def test_short_soak_is_inconclusive():
    grown = fit_trends(samples("memory", lambda n: 100.0 + 5 * n))
    assert not SoakResult(grown, MIN_SECONDS, 1, per_second=1).is_flat
    assert SoakResult(grown, MIN_SECONDS - 1, 1, per_second=1).is_flat
    assert SoakResult(grown, MIN_SECONDS - 1, 1, per_second=1).has_kept_up


@pytest.mark.parametrize(("tasks", "code", "message"), [
    (32_400, 0, "no metric grows"), (32_399, 1, "32,399 tasks in 600 s, less than the required 32,400: no verdict"),
])  # fmt: skip
def test_soak_with_too_few_tasks_fails(monkeypatch, tasks, code, message):
    flat = SoakResult(fit_trends(samples("memory", lambda _: 100.0)), MIN_SECONDS, tasks, per_second=60)
    monkeypatch.setattr(chaos, "run_soak", lambda *_, **__: None)
    monkeypatch.setattr(chaos, "_run_interruptible", lambda _: flat)
    result = CliRunner().invoke(chaos.soak_command, ["--minutes", "10"], standalone_mode=False)
    assert result.return_value == code
    assert message in result.stderr


async def test_clients_share_the_rate_limit():
    limiter = BacklogLimiter(10**9, per_second=2000)
    started_at = time.monotonic()
    await asyncio.gather(*(limiter.acquire(50) for _ in range(4) for _ in range(3)))
    assert time.monotonic() - started_at >= 600 / 2000


async def test_unused_rate_is_not_accumulated():
    limiter = BacklogLimiter(10**9, per_second=1000)
    await limiter.acquire(100)
    await asyncio.sleep(0.2)  # twice the necessary time
    started_at = time.monotonic()
    await limiter.acquire(100)
    assert time.monotonic() - started_at >= 0.1


@pytest.mark.timeout(300)
def test_short_soak_samples_all_metrics():
    arguments = ["chaos", "soak", "--minutes", "0.1", "--workers", "1", "-o", "json"]
    ran = FORK_SERVER.run(arguments, dict(os.environ), timeout=280)
    records = json.loads(ran.stdout)
    assert ran.returncode == 0, ran.stderr  # pools still open within seconds; that is not judged
    assert "too short for a verdict" in ran.stderr
    assert {record["grows"] for record in records} == {""}
    assert {record["figure"].removesuffix(" MB") for record in records} == set(METRIC_LIMITS)
    watched = {record["of"].split(",")[0] for record in records}
    assert {"postgres", "clickhouse", "server 1", "worker 1"} <= watched
    assert len({name for name in watched if name.startswith("worker ")}) >= 2  # one of them is an HTTP worker


def test_anonymous_bytes_ignore_mapped_files(tmp_path):
    process = psutil.Process()
    before = anonymous_bytes(process)
    file = tmp_path / "large"
    file.write_bytes(bytes(64_000_000))
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[::4096]) == 0
        assert anonymous_bytes(process) - before < 16_000_000
    held = bytearray(b"x") * 64_000_000
    assert anonymous_bytes(process) - before > 48_000_000
    del held
