"""The docstring of each package lists its modules and subpackages, and names nothing that does not exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in (ROOT / "aaiclick").rglob("__init__.py"))
MAX_LINE_LENGTH = 100

ENTRY = re.compile(r"^- `(\w+)`: \S", re.MULTILINE)
DOTTED_NAME = re.compile(r"(?<![/\w])aaiclick(?:\.[a-z_]\w*)+")


def read_docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


def list_modules(package: Path) -> set[str]:
    """Names of the modules and subpackages of a package."""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def list_directories(package: Path) -> set[str]:
    """Directories with files; one that holds only `__pycache__` is left over from a deleted package."""
    directories = (path for path in package.iterdir() if path.is_dir() and path.name != "__pycache__")
    return {path.name for path in directories if any(child.is_file() for child in path.iterdir())}


def is_module(dotted_name: str) -> bool:
    path = ROOT.joinpath(*dotted_name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_docstring_lists_every_module_once(package):
    entries = ENTRY.findall(read_docstring(package))
    assert sorted(entries) == sorted(set(entries)), "listed twice"
    assert list_modules(package) - set(entries) == set(), "not listed in the docstring"
    assert set(entries) - list_modules(package) - list_directories(package) == set(), "listed, but does not exist"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_docstring_names_existing_modules_of_other_packages(package):
    names = DOTTED_NAME.findall(read_docstring(package))
    assert [name for name in names if not is_module(name)] == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_entries_are_one_short_line(package):
    lines = read_docstring(package).splitlines()
    assert [line for line in lines if line.startswith("- ") and len(line) > MAX_LINE_LENGTH] == []
    assert [line for line in lines if line.startswith("- ") and not ENTRY.match(line)] == []
