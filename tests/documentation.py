"""Code blocks of the documentation, their markers, and the commands in them.

A comment before a block says why it is not run by the tests of its page:

    <!-- not run: REASON -->     one of NOT_RUN
    <!-- run by: tests/FILE -->  another test runs it
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import click

from aaiclick.cli.main import cli
from aaiclick.cli.param_types import IdType

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = {"installs system services": 1, "needs jq": 1, "needs servers of other programs": 1}
"""Reasons not to run a block, with the number of blocks, which may only decrease."""
RUNS_UNTIL_STOPPED = {("up",), ("dev",), ("demo",), ("mcp",), ("worker", "start"), ("server", "start")}
"""Commands of which only the arguments are checked."""
BLOCK = re.compile(
    r"(?:<!-- (?P<marker>not run|run by): (?P<reason>[^>]+?) -->\n+)?^ *```(?P<language>python|yaml|json|sh|bash)\n"
    r"(?P<text>.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)
HEADING = re.compile(r"# (\w+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: str
    line: int
    language: str
    text: str
    marker: str | None
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """Name of the file that the block is, from its first line."""
        heading = HEADING.match(self.text)
        return heading[1] if heading else None

    @property
    def lines(self) -> list[str]:
        """Lines of a shell block."""
        return [line for line in self.text.splitlines() if line.strip() and not line.startswith("#")]


@dataclass(frozen=True)
class Command:
    """A call of `aaiclick` in a line of a shell block."""

    arguments: list[str]
    stdin_text: str | None = None
    stdin_file: str | None = None
    stdout_file: str | None = None

    @property
    def runs_until_stopped(self) -> bool:
        return any(tuple(self.arguments[: len(name)]) == name for name in RUNS_UNTIL_STOPPED)


def list_blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(ROOT)).removeprefix("docs/")
    return [
        Block(name, text.count("\n", 0, match.start("text")), *match.group("language", "text", "marker", "reason"))
        for match in BLOCK.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in list_blocks(page)]


def read_command(line: str) -> Command | None:
    """The call of `aaiclick` in a line, with its input and output; None for other programs."""
    tokens = shlex.split(line, comments=True)
    if "&&" in tokens:
        tokens = tokens[tokens.index("&&") + 1 :]
    text = None
    if tokens[:1] == ["printf"] and "|" in tokens:
        text = tokens[1].replace("\\n", "\n")
        tokens = tokens[tokens.index("|") + 1 :]
    if tokens[:1] != ["aaiclick"]:
        return None
    files: dict[str, str | None] = {"<": None, ">": None}
    arguments: list[str] = []
    iterator = iter(tokens[1:])
    for token in iterator:
        if token == "|":
            break
        if token in files:
            files[token] = next(iterator)
        else:
            arguments.append(token)
    return Command(arguments, text, files["<"], files[">"])


def check_command(arguments: list[str]) -> None:
    """Assert that the command line accepts the arguments; shortened ids are not looked up."""
    command: click.Command = cli
    context = click.Context(cli)
    while isinstance(command, click.Group):
        name, *arguments = arguments
        child = command.get_command(context, name)
        assert child is not None, name
        command = child
    with patch.object(IdType, "_find", lambda _type, prefix, _context: prefix):
        command.make_context(command.name, list(arguments))


@dataclass(frozen=True)
class Example:
    """The code blocks in the docstring of a public function or class."""

    name: str
    text: str

    def __str__(self) -> str:
        return self.name

    async def run(self, path: Path, names: dict[str, object]) -> None:
        """Run the example as that file; it may await. Comments behind expressions are their values."""
        lines = self.text.splitlines()
        for node in ast.parse(self.text).body:
            is_value = isinstance(node, ast.Expr)
            tree: ast.AST = ast.Expression(node.value) if is_value else ast.Module([node], [])
            code = compile(tree, str(path), "eval" if is_value else "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            value = eval(code, names)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
            _, _, expected = lines[(node.end_lineno or 1) - 1].partition("  # ") if is_value else ("", "", "")
            assert not expected or repr(value) == expected, f"{self.name}: {value!r}"


def list_examples(module: ModuleType, names: Iterable[str]) -> list[Example]:
    """Examples of the functions and classes of a module; one without an example has an empty text."""
    values = {name: getattr(module, name) for name in names}
    return [
        Example(
            name, "\n".join(re.findall(r"^```python\n(.*?)^```", inspect.getdoc(value) or "", re.DOTALL | re.MULTILINE))
        )
        for name, value in values.items()
        if inspect.isroutine(value) or inspect.isclass(value)
    ]
