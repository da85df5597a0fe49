"""The documentation site: its navigation, generated pages and llms.txt are complete."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from aaiclick.settings import Settings
from tests.reference_pages import (
    CLI_PAGE,
    DAG_PAGE,
    HTTP_PAGE,
    load_openapi,
    render_cli_page,
    render_dag_page,
    render_http_page,
)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())


def list_pages(entry: object) -> list[str]:
    """Pages of an entry of the navigation."""
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in list_pages(child)]


def test_every_page_is_in_the_navigation_or_linked_from_a_page() -> None:
    pages = [page for page in DOCS.rglob("*.md") if "decisions" not in page.parts]
    listed = list_pages(CONFIG["nav"])
    assert len(set(listed)) == len(listed)
    linked = {
        (page.parent / link).resolve() for page in pages for link in re.findall(r"\]\(([\w./-]+\.md)", page.read_text())
    }
    listed_paths = {DOCS / name for name in listed}
    assert listed_paths <= set(pages)
    assert set(pages) - listed_paths - linked == set()


def test_every_decision_is_listed() -> None:
    decisions = DOCS / "internals" / "decisions"
    listed = re.findall(r"\]\((\S+)\)", (decisions / "index.md").read_text())
    assert listed == sorted(path.name for path in decisions.glob("0*.md"))


def test_llms_txt_links_to_pages_that_exist() -> None:
    links = re.findall(r"\]\(([\w./-]+)\)", (DOCS / "llms.txt").read_text())
    assert [link for link in links if not (DOCS / link).exists()] == []
    guides = set(list_pages(CONFIG["nav"][0])) | set(list_pages(CONFIG["nav"][1])) - {"index.md"}
    assert guides - {"index.md"} <= set(links)


def test_settings_page_describes_every_setting() -> None:
    rows = dict(
        re.findall(r"^\| (\w+) \| [^|]* \| (.*) \|$", (DOCS / "reference" / "settings.md").read_text(), re.MULTILINE)
    )
    described = {field.validation_alias: str(field.description) for field in Settings.model_fields.values()}
    assert rows.pop("variable") == "meaning"
    assert rows == {name: text.replace("|", "&#124;") for name, text in described.items()}


def test_commands_page_lists_every_command_with_its_options() -> None:
    """`python -m tests.reference_pages` writes the page."""
    assert CLI_PAGE.read_text() == render_cli_page()


def test_page_of_dag_files_has_every_key() -> None:
    assert DAG_PAGE.read_text() == render_dag_page()


def test_page_of_http_paths_has_every_path() -> None:
    assert HTTP_PAGE.read_text() == render_http_page(load_openapi())


def test_first_screen_of_the_readme_says_what_it_is() -> None:
    first = (ROOT / "README.md").read_text().splitlines()[:24]
    text = "\n".join(first)
    for phrase in ("**For**", "**Instead of**", "make demo", "docs/images/ui-shop-dark.png"):
        assert phrase in text
    assert len((ROOT / "README.md").read_text().splitlines()) < 95
