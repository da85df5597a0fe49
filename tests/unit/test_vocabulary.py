"""Names and prose use the terms of docs/glossary.md: counts of violations per package, which may only decrease.

The words below are those that most often stand for a metaphor or for a component described as a person. A count that is
lower than its table fails too: lower the number in the table, so that it cannot rise again.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from aaiclick.server.app import create_app
from aaiclick.server.app_state import AppState
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.settings import Settings

ROOT = Path(__file__).parents[2]

MANNERED = re.compile(
    r"\b(said|told|tells|hears?|heard|speaks?|spoken|spoke|[Ww]hoever|[Nn]obody|[Ss]omebody|[Ee]verybody|whose|[Dd]eeds?"
    r"|afar|anew|mend(s|ed)?|dear(er)?|lest|amid|stumbl\w+|goodbye|(came|comes?|became|becomes?) of|lets? go|in words"
    r"|in a word|own words|beside)\b"
    r"|\b[Ww]ho (is|has|was|asks|says|comes|went|leads|waits|listens|runs|reads|wants|may|holds|does|still|cannot)\b"
)
VAGUE_NAMES = {
    "found", "given", "made", "said", "told", "known", "wanted", "seen", "heard", "kept", "looked", "asked", "ours",
    "theirs", "others", "each", "words", "kind", "place",
}  # fmt: skip

ANY_VAGUE_NAME = re.compile(rf"\b({'|'.join(sorted(VAGUE_NAMES))})\b")

MANNERED_TEXTS: dict[str, int] = {}
"""Docstrings and comments with such words, by package; packages without an entry have none."""

VAGUE_VARIABLES: dict[str, int] = {
    "aaiclick": 1,
    "aaiclick/api": 1,
    "aaiclick/catalog": 6,
    "aaiclick/chaos": 6,
    "aaiclick/data": 11,
    "aaiclick/orchestration": 5,
    "aaiclick/store": 7,
    "tests": 3,
    "tests/unit": 1,
}
"""Uses of vague variable names, by package; packages without an entry have none."""

ONE_WORD_FUNCTIONS_PERCENT = 17
"""Share of functions and methods of `aaiclick` with a name of one word; properties and other decorated ones are not
counted.
"""


def source_files(package: str) -> list[Path]:
    """Python and SQL files of a package; of a package with subpackages listed on their own, only its direct files."""
    directory = ROOT / package
    paths = directory.glob("*") if package in ("aaiclick", "tests") else directory.rglob("*")
    return [path for path in paths if path.suffix in (".py", ".sql") and "versions" not in path.parts]


def find_packages() -> list[str]:
    names = []
    for root in ("aaiclick", "tests"):
        names.append(root)
        names += sorted(
            f"{root}/{path.name}" for path in (ROOT / root).iterdir() if path.is_dir() and any(path.rglob("*.py"))
        )
    return [*names, "bench", "examples"]


PACKAGES = find_packages()


@cache
def list_nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def iter_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield docstrings with their line numbers, and the comments of files in which one may violate the rule."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".sql":
        yield from ((number, line) for number, line in enumerate(source.splitlines(), 1) if line.startswith("--"))
        return
    if not MANNERED.search(source):
        return  # parsing is slow
    for node in list_nodes(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring
        if isinstance(node, (ast.Module, ast.ClassDef)):
            yield from iter_attribute_docstrings(node)
    if not any("#" in line and MANNERED.search(line) for line in source.splitlines()):
        return  # no comment can violate the rule, and tokenizing is slow
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|pyright|fmt|type:)", token.string):
            yield token.start[0], token.string


def iter_attribute_docstrings(node: ast.Module | ast.ClassDef) -> Iterator[tuple[int, str]]:
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and isinstance(following, ast.Expr):
            value = following.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield following.lineno, value.value


def check_count(violations: list[str], limit: int, table: str) -> None:
    listing = "\n".join(violations)
    assert len(violations) <= limit, f"{len(violations)} violations, at most {limit} allowed:\n{listing}"
    assert len(violations) >= limit, f"Only {len(violations)} violations left: lower the number in {table}."


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_and_comments_have_no_mannered_words(package):
    violations = [
        f"{path.relative_to(ROOT)}:{line}: {' '.join(text.split())[:120]}"
        for path in source_files(package)
        if path != Path(__file__)
        for line, text in iter_texts(path)
        if MANNERED.search(text)
    ]
    check_count(violations, MANNERED_TEXTS.get(package, 0), "MANNERED_TEXTS")


def is_hypothesis_given(path: Path, node: ast.Name) -> bool:
    return node.id == "given" and "from hypothesis import" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("package", PACKAGES)
def test_variables_are_named_after_what_they_hold(package):
    violations = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.id}"
        for path in source_files(package)
        if path.suffix == ".py" and ANY_VAGUE_NAME.search(path.read_text(encoding="utf-8"))
        for node in list_nodes(path)
        if isinstance(node, ast.Name) and node.id in VAGUE_NAMES and not is_hypothesis_given(path, node)
    ]
    check_count(violations, VAGUE_VARIABLES.get(package, 0), "VAGUE_VARIABLES")


def test_functions_are_verb_phrases():
    names = [
        node.name.strip("_")
        for path in (ROOT / "aaiclick").rglob("*.py")
        if "versions" not in path.parts
        for node in list_nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not node.name.startswith("__")
        and not any(isinstance(decorator, ast.Name | ast.Attribute) for decorator in node.decorator_list)
    ]
    one_word = sorted(name for name in names if "_" not in name)
    assert 100 * len(one_word) / len(names) <= ONE_WORD_FUNCTIONS_PERCENT, one_word


def test_class_names_are_unique():
    """Models and schemas are excluded: a table, a request and a handle of one concept share its name."""
    paths: dict[str, list[str]] = {}
    for path in (ROOT / "aaiclick").rglob("*.py"):
        if not {"models", "api"} & set(path.parts) and path.name != "models.py":
            for node in list_nodes(path):
                if isinstance(node, ast.ClassDef):
                    paths.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    duplicates = {name: files for name, files in paths.items() if len(files) > 1}
    assert duplicates == {}


DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_documents_have_no_mannered_words(page):
    without_blocks = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"`[^`\n]*`", "", without_blocks)
    assert [match.group(0) for match in MANNERED.finditer(prose)] == []


def iter_openapi_texts(value: object) -> Iterator[str]:
    """Yield every description, summary and title of an OpenAPI document."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("description", "summary", "title") and isinstance(item, str):
                yield item
            yield from iter_openapi_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from iter_openapi_texts(item)


def test_openapi_descriptions_have_no_mannered_words():
    app = create_app(AppState(Settings(), PostgresEndpoint("localhost", 1, "user", "database")))
    document = app.openapi()
    assert [text for text in iter_openapi_texts(document) if MANNERED.search(text)] == []
