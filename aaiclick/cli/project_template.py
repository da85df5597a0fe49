"""Files of a new project, for `aaiclick init`; `$package` is the name of its package."""

from __future__ import annotations

JOBS = '''\
"""Jobs of the project."""

from __future__ import annotations

from aaiclick.data import Object, col, create_object_from_value
from aaiclick.orchestration import job, task

CITIES = ["Bari", "Cork", "Lund"]


@task
async def load_trips(count: int) -> Object:
    """Trips with their city and distance. Read a file or a table here, for example with create_object_from_file."""
    rows = range(count)
    return await create_object_from_value(
        {"city": [CITIES[row % len(CITIES)] for row in rows], "km": [float(row % 40) for row in rows]}
    )


@task
async def find_mean(trips: Object, city: str) -> float:
    """Mean distance of a city; the query runs in ClickHouse."""
    return await trips.filter(col("city") == city)["km"].mean().data()


@task
def make_report(means: dict[str, float]) -> str:
    longest = max(means, key=lambda city: means[city])
    return f"The longest trips are in {longest}: {means[longest]:.1f} km on average."


@job
def report_trips(count: int = 1000) -> None:
    """Runs with: aaiclick run $package.jobs.report_trips --arg count=5000"""
    trips = load_trips(count)
    make_report({city: find_mean(trips, city) for city in CITIES})
'''

STEPS = '''\
"""Functions of the DAG in dags/trips.yaml."""

from __future__ import annotations


def fetch_trips(count: int) -> list[dict[str, object]]:
    """Rows of the source; replace it by a request to your system."""
    cities = ["Bari", "Cork", "Lund"]
    return [{"id": row, "city": cities[row % len(cities)], "km": float(row % 40)} for row in range(count)]


def rate_cities(city_means: list[dict[str, object]], long_km: float) -> list[dict[str, object]]:
    return [{"city": row["city"], "is_long": float(str(row["mean_km"])) >= long_km} for row in city_means]
'''

DAG = """\
# Trips of every city, kept up to date. Check it with: aaiclick dag validate dags/trips.yaml
name: trips
jobs:
  - name: fetch
    activation: source
    operator: python
    source: {kind: cron, schedule: "0 6 * * *"}
    outputs: [raw_trips]
    config:
      function: $package.steps:fetch_trips
      arguments: {count: 120}

  - name: means
    activation: reactive
    operator: sql
    outputs: [city_means]
    config:
      query: |
        SELECT city, count() AS trips, avg(km) AS mean_km
        FROM raw_trips
        GROUP BY city

  - name: rate
    activation: reactive
    operator: python
    inputs: [city_means]
    outputs: [rated_cities]
    config:
      function: $package.steps:rate_cities
      arguments: {long_km: 19.5}

publish: [city_means, rated_cities]
"""

TEST_JOBS = '''\
"""Tests of jobs: they run to their end in this process, on databases of their own."""

from __future__ import annotations

import asyncio

import pytest
from aaiclick.orchestration import run_job_test

from $package import jobs


@pytest.mark.usefixtures("aaiclick_env")
def test_report_names_the_city_with_the_longest_trips() -> None:
    job = run_job_test(asyncio.run(jobs.report_trips(120)))
    assert job.status == "COMPLETED", job.error


def test_report_is_one_sentence() -> None:
    assert jobs.make_report.function({"Bari": 2.0, "Cork": 3.25}) == (
        "The longest trips are in Cork: 3.2 km on average."
    )
'''

TEST_DAG = '''\
"""Tests of the DAG: it is valid, and its datasets have the expected rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


def aaiclick(*arguments: str) -> str:
    command = [sys.executable, "-m", "aaiclick", *arguments]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dag_is_valid() -> None:
    aaiclick("dag", "validate", "dags/trips.yaml")


@pytest.mark.usefixtures("aaiclick_env")
def test_dag_rates_cities() -> None:
    aaiclick("dag", "deploy", "dags/trips.yaml")
    aaiclick("dag", "run", "trips")
    rows = json.loads(aaiclick("datasets", "query", "SELECT * FROM rated_cities ORDER BY city", "-o", "json"))
    assert [row["city"] for row in rows] == ["Bari", "Cork", "Lund"]
    assert any(row["is_long"] for row in rows)
'''

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["aaiclick>=$version"]

[project.optional-dependencies]
dev = ["pytest>=8"]

[tool.hatch.build.targets.wheel]
packages = ["$package"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

README = """\
# $name

    aaiclick dev                                     # databases, web UI and a worker that follows your edits
    aaiclick run $package.jobs.report_trips          # in another terminal
    aaiclick dag deploy dags/trips.yaml
    aaiclick dag run trips
    aaiclick datasets query "SELECT * FROM rated_cities"
    python -m pytest                                 # on databases of its own

| file | contains |
|---|---|
| `$package/jobs.py` | a job in Python |
| `dags/trips.yaml`, `$package/steps.py` | a DAG and its functions |
| `tests/` | tests of both |
"""

CI = """\
name: test
on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - run: python -m pip install -e .[dev]
      - run: aaiclick dag validate dags/*.yaml
      - run: python -m pytest
"""

FILES = {
    "pyproject.toml": PYPROJECT,
    "README.md": README,
    ".gitignore": "__pycache__/\n*.egg-info/\n.venv/\n.pytest_cache/\n",
    ".github/workflows/test.yml": CI,
    "$package/__init__.py": '"""Jobs and steps of $name."""\n',
    "$package/jobs.py": JOBS,
    "$package/steps.py": STEPS,
    "dags/trips.yaml": DAG,
    "tests/test_jobs.py": TEST_JOBS,
    "tests/test_dag.py": TEST_DAG,
}
