"""The wheel carries everything: installed elsewhere, run from another directory, it migrates."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The wheel of this tree, alone in a directory that comes before everything else."""
    made = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", made, REPOSITORY],
        check=True,
        capture_output=True,
    )
    site = made / "site"
    wheel = next(made.glob("*.whl"))
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel],
        check=True,
        capture_output=True,
    )
    return site


def run(installed, cwd, *arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "aaiclick", *arguments],
        env=os.environ | {"PYTHONPATH": str(installed)} | variables,
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def test_it_is_the_wheel_that_runs(installed, tmp_path):
    where = subprocess.check_output(
        [sys.executable, "-c", "import aaiclick; print(aaiclick.__file__)"],
        env=os.environ | {"PYTHONPATH": str(installed)},
        cwd=tmp_path,
        text=True,
    )
    assert Path(where.strip()).is_relative_to(installed)


def test_it_has_every_file(installed):
    def files(root):
        found = (path.relative_to(root) for path in (root / "aaiclick").rglob("*") if path.is_file())
        return {path for path in found if "__pycache__" not in path.parts}

    assert files(installed) == files(REPOSITORY)
    assert Path("aaiclick/py.typed") in files(installed)


def test_it_migrates_from_any_directory(installed, tmp_path, aaiclick_stack):
    aaiclick_stack.run(aaiclick_stack.sql("CREATE DATABASE wheel_test"))
    try:
        url = aaiclick_stack.lease.postgres().with_database("wheel_test").dsn
        assert run(installed, tmp_path, "migrate", AAICLICK_DATABASE_URL=url).returncode == 0
        assert run(installed, tmp_path, "migrate", "check", AAICLICK_DATABASE_URL=url).returncode == 0
    finally:
        aaiclick_stack.run(aaiclick_stack.sql("DROP DATABASE wheel_test WITH (FORCE)"))
