"""The wheel is complete: installed in another directory, it runs migrations."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Directory with the installed wheel, first on the import path."""
    build_directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", build_directory, REPOSITORY],
        check=True,
        capture_output=True,
    )
    site = build_directory / "site"
    wheel = next(build_directory.glob("*.whl"))
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


def test_installed_wheel_is_imported(installed, tmp_path):
    where = subprocess.check_output(
        [sys.executable, "-c", "import aaiclick; print(aaiclick.__file__)"],
        env=os.environ | {"PYTHONPATH": str(installed)},
        cwd=tmp_path,
        text=True,
    )
    assert Path(where.strip()).is_relative_to(installed)


def test_wheel_contains_every_file(installed):
    def files(root):
        paths = (path.relative_to(root) for path in (root / "aaiclick").rglob("*") if path.is_file())
        return {path for path in paths if "__pycache__" not in path.parts}

    assert files(installed) == files(REPOSITORY)
    assert Path("aaiclick/py.typed") in files(installed)


def test_wheel_migrates_from_any_directory(installed, tmp_path, aaiclick_stack):
    aaiclick_stack.run(aaiclick_stack.run_sql("CREATE DATABASE wheel_test"))
    try:
        url = aaiclick_stack.connection.postgres_endpoint().with_database("wheel_test").dsn
        assert run(installed, tmp_path, "migrate", AAICLICK_DATABASE_URL=url).returncode == 0
        assert run(installed, tmp_path, "migrate", "check", AAICLICK_DATABASE_URL=url).returncode == 0
    finally:
        aaiclick_stack.run(aaiclick_stack.run_sql("DROP DATABASE wheel_test WITH (FORCE)"))
