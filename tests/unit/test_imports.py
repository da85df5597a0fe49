"""Imports: names that examples and benchmarks use exist, and programs that start often import no slow library."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "bench").glob("*.py"), *(ROOT / "examples").rglob("*.py")])


def list_imports(path: Path) -> list[tuple[str, str]]:
    """Modules of aaiclick that a file imports, and the names that it takes from them."""
    return [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "aaiclick"
        for alias in node.names
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_imported_from_aaiclick_exist(path):
    missing: list[str] = []
    for module, name in list_imports(path):
        if not hasattr(import_module(module), name):
            try:
                import_module(f"{module}.{name}")
            except ModuleNotFoundError:
                missing.append(f"{module}.{name}")
    assert missing == []


CLICKHOUSE = ("clickhouse_connect", "pyarrow", "sqlglot")
SLOW_LIBRARIES = {
    "aaiclick.cli.main, aaiclick.cli.run": (
        *CLICKHOUSE,
        "sqlalchemy",
        "fastapi",
        "asyncpg",
        "pydantic",
        "aaiclick.orchestration",
    ),
    "aaiclick.cli.run_job, aaiclick.cli.worker, aaiclick.orchestration": (*CLICKHOUSE, "sqlalchemy", "fastapi"),
    "aaiclick.cli.dag, aaiclick.cli.datasets, aaiclick.cli.jobs": (
        *CLICKHOUSE,
        "sqlalchemy",
        "fastapi",
        "aaiclick.orchestration",
    ),
    "aaiclick.server.analysis_process": ("aaiclick.orchestration", "asyncpg", "pyarrow"),
}


@pytest.mark.parametrize("modules", SLOW_LIBRARIES)
def test_modules_import_no_slow_library(modules):
    program = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert set(SLOW_LIBRARIES[modules]) & set(loaded) == set()
