"""Every code block of the README and of docs/ is valid, and is run by a test or says why not."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections import Counter

import pytest
import yaml

from aaiclick.catalog.dags.yaml_tree import parse_yaml
from tests.documentation import BLOCKS, NOT_RUN, ROOT, Block, check_command, read_command

RUN_BY = {  # test files that run all blocks of a language
    "README.md": {"python": "tests/e2e/test_readme.py"},
    "cookbook.md": dict.fromkeys(("python", "yaml", "sh"), "tests/integration/catalog/test_cookbook.py"),
    "data-tests.md": {"python": "tests/integration/orchestration/test_data_tests_documentation.py"},
    "expressions.md": {"python": "tests/integration/data/test_reference.py"},
    "functions.md": dict.fromkeys(("python", "sh"), "tests/integration/server/test_job_functions.py"),
    "jobs.md": {"python": "tests/integration/orchestration/test_jobs_documentation.py"},
    "notifications.md": dict.fromkeys(("python", "sh"), "tests/integration/server/test_notifications_documentation.py"),
    "objects.md": {"python": "tests/integration/data/test_reference.py"},
    "parameters.md": dict.fromkeys(
        ("python", "sh"), "tests/integration/orchestration/test_parameters_documentation.py"
    ),
    "reference/python.md": {"python": "tests/integration/test_docstring_examples.py"},
    "schedules.md": {"python": "tests/integration/orchestration/test_schedules_documentation.py"},
    "tables.md": {"python": "tests/integration/data/test_table_examples.py"},
    "testing.md": {"python": "tests/e2e/test_readme.py"},
    "tutorial.md": {"sh": "tests/integration/catalog/test_pages_with_examples.py"},
    "workflows.md": {"python": "tests/integration/orchestration/test_workflows_documentation.py"},
}
COMMON = "tests/integration/catalog/test_documentation.py"
COMMON_PAGES = {  # languages that COMMON runs
    "connectors.md": {"python", "yaml"}, "organisations.md": {"sh"}, "README.md": {"sh"}, "cli.md": {"sh"},
    "dags.md": {"python", "sh", "yaml"}, "data.md": {"json", "python"}, "data-tests.md": {"sh", "yaml"},
    "files.md": {"python"}, "first-steps.md": {"sh"}, "freshness.md": {"sh", "yaml"}, "jobs.md": {"sh"},
    "jobs-or-dags.md": {"python", "sh", "yaml"},
    "observability.md": {"sh"}, "operators.md": {"python"}, "schedules.md": {"sh"},
}  # fmt: skip
PLACEHOLDERS = {"ID": "1", "JOB": "1", "/etc/aaiclick/cert.pem": "file.csv", "/etc/aaiclick/key.pem": "file.csv"}
FILE_PAGES = ("first-steps.md", "tutorial.md", "coming-from/")
"""Pages with files that tests/integration/catalog/test_pages_with_examples.py runs."""


def find_test(block: Block) -> str | None:
    """The test that runs a block."""
    if block.marker == "run by":
        return block.reason
    if block.language in COMMON_PAGES.get(block.page, ()):
        return COMMON
    if block.file and block.page.startswith(FILE_PAGES):
        return "tests/integration/catalog/test_pages_with_examples.py"
    return RUN_BY.get(block.page, {}).get(block.language)


def check_is_run(block: Block) -> None:
    """Assert that a test runs the block, or that a comment says why none does."""
    test = find_test(block)
    assert test is not None or block.marker == "not run", "Run it in a test, or mark it with a reason."
    assert test is None or (ROOT / test).exists()


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=str)
def test_python_block_compiles_and_is_run_by_a_test(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    check_is_run(block)


def list_shell_blocks() -> list[Block]:
    return [block for block in BLOCKS if block.language in ("sh", "bash")]


@pytest.mark.parametrize("block", list_shell_blocks(), ids=str)
def test_shell_block_is_valid_and_run_by_a_test(block: Block, tmp_path, monkeypatch) -> None:
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.csv").touch()
    for name in re.findall(r"[\w-]+\.(?:py|yaml|csv)\b", block.text):
        (tmp_path / name).touch()  # arguments that must be existing files
    commands = [] if block.page == "cookbook.md" else [read_command(line) for line in block.lines]
    for command in commands:
        if command is not None:
            check_command([PLACEHOLDERS.get(text, text) for text in command.arguments])
    check_is_run(block)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language in ("yaml", "json")], ids=str)
def test_data_block_parses_and_is_run_by_a_test(block: Block) -> None:
    check_is_run(block)
    if block.language == "json":
        for line in [block.text] if block.text.startswith("{\n") else block.text.splitlines():
            assert json.loads(line)
    elif block.text.startswith(("name:", "# ")) and "\n" in block.text.strip():
        assert parse_yaml(block.text) is not None
    else:
        yaml.safe_load(block.text)


def test_reasons_of_blocks_that_are_not_run_only_become_fewer() -> None:
    assert Counter(block.reason for block in BLOCKS if block.marker == "not run") == NOT_RUN
