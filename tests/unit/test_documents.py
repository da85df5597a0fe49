"""What the documents name exists: tests, modules, commands, links; and what they list is all that there is."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from aaiclick import errors
from aaiclick.cli.main import EXIT_INTERRUPTED, cli
from aaiclick.server.routes import ALL

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("security.md", "reliability.md", "operations.md", "spec.md", "contributing.md")
OF_MODULES = ("architecture.md", "contributing.md", "dags.md", "engine.md", "lifecycle.md", "security.md", "spec.md")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SPEC = [line for line in (ROOT / "docs" / "spec.md").read_text().splitlines() if line.startswith("|")]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def tests():
    files = [path for path in (ROOT / "tests").rglob("*.py") if path.name != Path(__file__).name]
    text = "\n".join(path.read_text() for path in files)
    return {path.name for path in files}, set(re.findall(r"def (test_\w+)", text))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_that_is_named_exists(document, tests):
    files, functions = tests
    text = (ROOT / "docs" / document).read_text()
    missing = [name for name in re.findall(r"`(tests/[\w/.]+)`", text) if not (ROOT / name).exists()]
    for name in re.findall(r"`(test_\w+)(?:\[[^`]*\])?`", text):
        missing += [] if name in functions else [name]
    missing += [name for name in re.findall(r"`(test_\w+\.py)`", text) if name not in files]
    assert missing == []


def test_the_tests_of_the_specification_are_in_the_folders_named_before_them():
    wrong: list[str] = []
    for line in SPEC:
        folder = None
        for name in re.findall(r"`((?:tests/[\w/]*)?(?:test_\w+\.py)?)`", line):
            folder, _, file = name.rpartition("/") if "/" in name else (folder, "", name)
            if name and not (ROOT / str(folder) / file).exists():
                wrong.append(f"{name} is not in {folder}")
    assert wrong == []


def exists(dotted: str) -> bool:
    """Whether there is such a module, or a module with such a name in it."""
    path = ROOT.joinpath(*dotted.split("."))
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    module, name = path.parent, path.name
    source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    made = rf"^(?:(?:async )?def |class |from .* import .*\b)?{name}\b|^    {name},$"
    return source.exists() and re.search(made, source.read_text(), re.MULTILINE) is not None


@pytest.mark.parametrize("document", OF_MODULES)
def test_every_module_and_name_of_ours_exists(document):
    text = (ROOT / "docs" / document).read_text()
    assert [name for name in re.findall(r"`(aaiclick(?:\.\w+)+)(?:\(\))?`", text) if not exists(name)] == []


def test_every_module_of_the_specification_exists_also_those_named_in_short():
    missing: list[str] = []
    for line in SPEC:
        whole = ""
        for name in re.findall(r"`(aaiclick(?:\.\w+)*|\.[a-z_.]+|sql/[\w*]+\.sql)`", line):
            if name.startswith("sql/"):
                missing += [] if list((ROOT / "aaiclick" / "store").glob(name)) else [name]
                continue
            whole = whole if name.startswith(".") else name
            full = whole.rpartition(".")[0] + name if name.startswith(".") else name
            missing += [] if exists(full) else [full]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)", page.read_text())
    missing: list[str] = []
    for link, anchor in links:
        target = (page.parent / link).resolve() if link else page
        if not target.exists():
            missing.append(link)
        elif anchor and anchor not in anchors(target):
            missing.append(f"{link}#{anchor}")
    assert missing == []


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_that_is_shown_exists(page):
    text = page.read_text()
    blocks = re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL) + re.findall(r"^    (.*)$", text, re.MULTILINE)
    shown = re.findall(r"^aaiclick ([a-z]+)(?: ([a-z]+))?", "\n".join(blocks), re.MULTILINE)
    context = click.Context(cli)
    for name, verb in shown:
        command = cli.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            assert command.get_command(context, verb) is not None, f"{name} {verb}"


def test_the_exit_codes_are_those_of_the_code():
    table = (ROOT / "docs" / "cli.md").read_text().split("## Exit codes")[1].split("## Output")[0]
    ours = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == {0, EXIT_INTERRUPTED} | ours


def test_the_lists_that_come_whole_are_those_that_the_api_page_names():
    page = (ROOT / "docs" / "api.md").read_text()
    sentence = page.split("These come whole", 1)[1].split("- **Errors**")[0]
    named = set(re.findall(r"`…?(/[\w/{}-]+)`", sentence))
    whole = {
        route.path
        for routes in ALL
        for route in routes.declared
        if route.method == "GET" and route.endpoint.__annotations__["return"].startswith("list[")
    }
    of_one_thing = {path for path in whole if re.search(r"\{(?:job|task)_id\}", path)}
    assert named == (whole - of_one_thing) | {"/" + path.rpartition("/")[2] for path in of_one_thing}
