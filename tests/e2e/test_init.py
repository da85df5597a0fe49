"""`aaiclick init`: the new project passes its own tests."""

import os
import subprocess
import sys

import pytest


def test_new_project_passes_its_own_tests(aaiclick, tmp_path, aaiclick_stack):
    created = aaiclick("init", "my-shop")
    assert created.returncode == 0, created
    assert "cd my-shop && python -m pytest" in created.stderr
    project = tmp_path / "my-shop"
    assert {path.name for path in project.iterdir()} >= {"my_shop", "dags", "tests", "pyproject.toml", ".github"}
    assert not [path for path in project.rglob("*") if path.is_file() and "$" in path.read_text()]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project, env=environment, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "4 passed" in tested.stdout


def test_existing_files_are_not_changed(aaiclick, tmp_path, no_traceback):
    (tmp_path / "README.md").write_text("mine")
    no_traceback(aaiclick("init", ".", "--package", "shop"), 2, "already contains README.md")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["README.md"]


@pytest.mark.parametrize("name", ["json", "tests", "9lives", "class"])
def test_unusable_package_names_are_refused(aaiclick, name, no_traceback):
    no_traceback(aaiclick("init", "project", "--package", name), 2, "--package my_project")
