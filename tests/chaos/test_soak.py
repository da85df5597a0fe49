"""A soak notices what grows, and nothing else; a short one, to see that it looks at everything. `make soak` is long."""

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

from aaiclick.chaos.load import Pace
from aaiclick.chaos.soak import KINDS, LEAST_SECONDS, Soaked, _of_processes, anonymous_bytes, trends
from aaiclick.cli import chaos
from tests.hatchery import HATCHERY


@dataclass
class Worker:
    """A program of one process."""

    number: int
    pid: int
    name = "worker"

    def processes(self):
        return [psutil.Process(self.pid)] if self.pid else []


def samples(kind, figure, count=100):
    return [(10.0 * n, {(kind, "it"): figure(n)}) for n in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_grows_is_noticed_and_what_only_wavers_is_not(kind):
    rng = random.Random(1)
    level = 4 * KINDS[kind].more + 10
    [flat] = trends(samples(kind, lambda _: level * rng.uniform(0.8, 1.2)))
    assert not flat.grows
    [growing] = trends(samples(kind, lambda n: level * (1 + n / 10) * rng.uniform(0.8, 1.2)))
    assert growing.grows
    assert growing.per_hour == pytest.approx(36 * level, rel=0.1)


def test_what_fills_at_first_and_then_stays_is_flat():
    [filled] = trends(samples("memory", lambda n: 100.0 + 5 * min(n, 35)))
    assert not filled.grows


def test_a_process_that_was_not_there_throughout_is_not_judged():
    points = samples("memory", lambda _: 100.0)
    points[-1] = points[-1][0], {("memory", "another"): 1e6}
    assert trends(points) == []


def test_a_process_that_was_replaced_midway_counts_in_its_role():
    scene = SimpleNamespace(workers=[Worker(1, os.getpid())], server=Worker(2, 0), servers=SimpleNamespace(pids=dict))
    before = _of_processes(scene)
    scene.workers = [Worker(3, os.getpid())]
    after = _of_processes(scene)
    roles = {("memory", "each worker supervisor"), ("file handles", "each worker supervisor")}
    assert set(before) & set(after) == roles


def test_only_a_soak_that_was_long_enough_is_judged():
    grown = trends(samples("memory", lambda n: 100.0 + 5 * n))
    assert not Soaked(grown, LEAST_SECONDS, 1, per_second=1).flat
    assert Soaked(grown, LEAST_SECONDS - 1, 1, per_second=1).flat
    assert Soaked(grown, LEAST_SECONDS - 1, 1, per_second=1).kept_up


@pytest.mark.parametrize(("tasks", "code", "said"), [
    (32_400, 0, "nothing grows"), (32_399, 1, "32,399 tasks in 600 s, and not 32,400: too little was done"),
])  # fmt: skip
def test_a_soak_in_which_work_stopped_is_no_good(monkeypatch, tasks, code, said):
    flat = Soaked(trends(samples("memory", lambda _: 100.0)), LEAST_SECONDS, tasks, per_second=60)
    monkeypatch.setattr(chaos, "soak", lambda *_, **__: None)
    monkeypatch.setattr(chaos, "_run", lambda _: flat)
    result = CliRunner().invoke(chaos.soak_command, ["--minutes", "10"], standalone_mode=False)
    assert result.return_value == code
    assert said in result.stderr


async def test_clients_together_submit_no_more_a_second_than_they_may():
    pace = Pace(10**9, per_second=2000)
    began = time.monotonic()
    await asyncio.gather(*(pace.take(50) for _ in range(4) for _ in range(3)))
    assert time.monotonic() - began >= 600 / 2000


async def test_what_was_missed_in_a_pause_is_not_made_up_for():
    pace = Pace(10**9, per_second=1000)
    await pace.take(100)
    await asyncio.sleep(0.2)  # twice as long as it had to be
    began = time.monotonic()
    await pace.take(100)
    assert time.monotonic() - began >= 0.1


@pytest.mark.timeout(120)
def test_a_short_soak_looks_at_everything():
    ran = HATCHERY.run(["chaos", "soak", "--minutes", "0.1", "--workers", "1", "-o", "json"], dict(os.environ))
    records = json.loads(ran.stdout)
    assert ran.returncode == 0, ran.stderr  # within seconds pools still open, and that is no growth
    assert "too short to judge" in ran.stderr
    assert {each["grows"] for each in records} == {""}
    assert {each["figure"].removesuffix(" MB") for each in records} == set(KINDS)
    watched = {each["of"].split(",")[0] for each in records}
    assert {"postgres", "clickhouse", "server 1", "worker 1"} <= watched
    assert len({name for name in watched if name.startswith("worker ")}) >= 2  # one of them uses the server


def test_memory_is_what_was_allocated_and_not_what_is_mapped(tmp_path):
    me = psutil.Process()
    before = anonymous_bytes(me)
    file = tmp_path / "large"
    file.write_bytes(bytes(64_000_000))
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[::4096]) == 0
        assert anonymous_bytes(me) - before < 16_000_000
    held = bytearray(b"x") * 64_000_000
    assert anonymous_bytes(me) - before > 48_000_000
    del held
