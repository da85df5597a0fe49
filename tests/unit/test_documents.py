"""The documentation matches the code: named tests, modules, commands and links exist, and lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from aaiclick import errors
from aaiclick.cli.main import EXIT_INTERRUPTED, cli
from aaiclick.server.routes import ALL

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROOT_PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md", "SECURITY.md", "CHANGELOG.md")]
PAGES = [*ROOT_PAGES, *sorted(DOCS.rglob("*.md"))]
PAGES_OF_CODE = [page for page in PAGES if page.name != "names.md"]  # tests/unit/test_names.py checks that page
NOT_IN_CODE = {"aaiclick.tests", "aaiclick.freshness",
    "aaiclick.job.id", "aaiclick.task.id", "aaiclick.org.id", "aaiclick.attempt", "aaiclick.status",  # of trace spans
    "aaiclick.org_id",  # a setting of PostgreSQL sessions
    "aaiclick.operators",  # also an entry point
}  # fmt: skip
SPECIFICATION = DOCS / "internals" / "spec.md"
SPECIFICATION_ROWS = [line for line in SPECIFICATION.read_text().splitlines() if line.startswith("|")]


def relative_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def test_names():
    files = [path for path in (ROOT / "tests").rglob("*.py") if path.name != Path(__file__).name]
    text = "\n".join(path.read_text() for path in files)
    return {path.name for path in files}, set(re.findall(r"def (test_\w+)", text))


@pytest.mark.parametrize("page", PAGES, ids=relative_name)
def test_every_named_test_exists(page, test_names):
    file_names, functions = test_names
    text = page.read_text()
    missing = [path for path in re.findall(r"`(tests/[\w/.]+)`", text) if not (ROOT / path).exists()]
    missing += [name for name in re.findall(r"`(test_\w+)(?:\[[^`]*\])?`", text) if name not in functions]
    missing += [name for name in re.findall(r"`(test_\w+\.py)`", text) if name not in file_names]
    assert missing == []


def test_the_tests_of_the_specification_are_in_the_folder_named_before_them():
    misplaced: list[str] = []
    for row in SPECIFICATION_ROWS:
        folder = None
        for name in re.findall(r"`((?:tests/[\w/]*)?(?:test_\w+\.py)?)`", row):
            folder, _, file = name.rpartition("/") if "/" in name else (folder, "", name)
            if name and not (ROOT / str(folder) / file).exists():
                misplaced.append(f"{name} is not in {folder}")
    assert misplaced == []


def exists_in_code(dotted: str) -> bool:
    """Return whether a module, or a module-level name in a module, has this dotted path."""
    path = ROOT.joinpath(*dotted.split("."))
    if (path / "__init__.py").exists() or path.with_suffix(".py").exists():
        return True
    module, name = path.parent, path.name
    source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    definition = rf"^(?:(?:async )?def |class |from .* import .*\b)?{name}\b|^    {name},$"
    return source.exists() and re.search(definition, source.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("page", PAGES_OF_CODE, ids=relative_name)
def test_every_named_module_and_function_exists(page):
    names = set(re.findall(r"`(aaiclick(?:\.\w+)+)(?:\(\))?`", page.read_text())) - NOT_IN_CODE
    assert [name for name in names if not exists_in_code(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=relative_name)
def test_every_named_sql_file_exists(page):
    names = re.findall(r"`(?:sql/)?(\w+\.sql)`", page.read_text())
    assert [name for name in names if not list((ROOT / "aaiclick" / "store").rglob(name))] == []


def test_every_module_of_the_specification_exists_including_abbreviated_ones():
    missing: list[str] = []
    for row in SPECIFICATION_ROWS:
        previous = ""
        for name in re.findall(r"`(aaiclick(?:\.\w+)*|\.[a-z_.]+|sql/[\w*]+\.sql)`", row):
            if name.startswith("sql/"):
                missing += [] if list((ROOT / "aaiclick" / "store").rglob(name)) else [name]
                continue
            previous = previous if name.startswith(".") else name
            full_name = previous.rpartition(".")[0] + name if name.startswith(".") else name
            missing += [] if exists_in_code(full_name) else [full_name]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=relative_name)
def test_every_link_has_a_target(page):
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)", page.read_text())
    missing: list[str] = []
    for link, anchor in links:
        target = (page.parent / link).resolve() if link else page
        if not target.exists():
            missing.append(link)
        elif anchor and anchor not in heading_anchors(target):
            missing.append(f"{link}#{anchor}")
    assert missing == []


def heading_anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=relative_name)
def test_every_command_shown_exists(page):
    text = page.read_text()
    blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL) + re.findall(r"^    (.*)$", text, re.MULTILINE)
    commands = re.findall(r"^aaiclick ([a-z]+)(?: ([a-z-]+))?", "\n".join(blocks), re.MULTILINE)
    context = click.Context(cli)
    for name, subcommand in commands:
        command = cli.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            assert command.get_command(context, subcommand) is not None, f"{name} {subcommand}"


def test_the_documented_exit_codes_are_those_of_the_code():
    table = (DOCS / "cli.md").read_text().split("## Exit codes")[1].split("## Output")[0]
    exit_codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    assert documented == {0, EXIT_INTERRUPTED} | exit_codes


def test_the_documented_lists_without_pages_are_those_of_the_api():
    page = (DOCS / "api.md").read_text()
    sentence = page.split("are returned in full", 1)[1].split("- **Errors**")[0]
    documented = set(re.findall(r"`…?(/[\w/{}-]+)`", sentence))
    without_pages = {
        route.path
        for routes in ALL
        for route in routes.declared
        if route.method == "GET" and route.endpoint.__annotations__["return"].startswith("list[")
    }
    of_one_job_or_task = {path for path in without_pages if re.search(r"\{(?:job|task)_id\}", path)}
    assert documented == (without_pages - of_one_job_or_task) | {
        "/" + path.rpartition("/")[2] for path in of_one_job_or_task
    }
