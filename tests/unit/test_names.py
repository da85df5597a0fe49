"""docs/internals/names.md: every name of the source documents exists under the name that the page gives."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from aaiclick.catalog.dags.json_schema import build_json_schema
from aaiclick.cli.main import cli
from aaiclick.server.routes import ALL
from aaiclick.settings import Settings, variable_names
from aaiclick.store import enums
from aaiclick.store.migrate import run_migrate_command
from aaiclick.store.models import metadata
from tests.names_page import PAGE, Row, read_rows

SECTIONS = {
    "Python names", "Modules", "Tables", "Renamed columns", "Indexes and constraints", "States", "Settings", "Commands",
    "Metrics", "HTTP paths", "Outbox", "Keywords of DAG files",
}  # fmt: skip


def test_every_section_is_checked():
    assert set(re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == SECTIONS


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_every_row_has_a_name_or_a_reason(section):
    for row in read_rows(section):
        assert row.ours or ("–" in row.text and row.note), row.text


def load_name(dotted: str) -> object:
    """Import a module, or an attribute of the longest module in the dotted path."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            target: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name is None or not dotted.startswith(error.name):
                raise
            continue
        for name in parts[length:]:
            target = getattr(target, name)
        return target
    raise AssertionError(dotted)


@pytest.mark.parametrize("row", read_rows("Python names"), ids=str)
def test_python_names_can_be_imported(row: Row):
    for name in row.ours:
        assert load_name(name) is not None


WITH_PARAMETERS = [row for row in read_rows("Python names") if re.search(r"\(\w", " ".join(row.document))]


@pytest.mark.parametrize("row", WITH_PARAMETERS, ids=str)
def test_python_names_take_the_documented_parameters(row: Row):
    for written in row.document:
        name, _, rest = written.partition("(")
        if not rest.rstrip(")"):
            continue
        target = next(path for path in row.ours if path.rpartition(".")[2] == name.rpartition(".")[2])
        parameters = inspect.signature(load_name(target)).parameters  # pyright: ignore[reportArgumentType]
        for parameter in rest.rstrip(")").split(", "):
            key, _, default = parameter.partition("=")
            variadic = [value for value in parameters.values() if value.kind is inspect.Parameter.VAR_POSITIONAL]
            assert key in parameters or variadic, f"{target} has no parameter {key}"
            if default:
                assert parameters[key].default == eval(default), f"{target}: {key}"


@pytest.mark.parametrize("row", read_rows("Modules"), ids=str)
def test_modules_can_be_imported(row: Row):
    for name in row.ours:
        assert isinstance(importlib.import_module(name), ModuleType)


@pytest.mark.parametrize("row", read_rows("Tables"), ids=str)
def test_tables_have_the_columns(row: Row):
    (table,) = row.ours
    columns = re.findall(r"`(\w+)`", row.note)
    assert columns
    assert set(columns) <= set(metadata.tables[table].columns.keys())


@pytest.mark.parametrize("row", [*read_rows("Renamed columns"), *read_rows("Outbox")], ids=str)
def test_renamed_columns_exist(row: Row):
    for name in row.ours:
        table, column = name.split(".")
        assert column in metadata.tables[table].columns


@pytest.mark.parametrize("row", read_rows("States"), ids=str)
def test_states_exist(row: Row):
    for name in row.ours:
        enum, member = name.split(".")
        assert member in getattr(enums, enum).__members__


@pytest.mark.parametrize("row", read_rows("Settings"), ids=str)
def test_settings_exist_with_the_documented_defaults(row: Row):
    (name,) = row.ours
    field = variable_names()[name]
    _, _, default = row.document[0].partition("=")
    if default:
        assert str(Settings.model_fields[field].default).removesuffix(".0") == default


@pytest.mark.parametrize("row", read_rows("Commands"), ids=str)
def test_commands_have_help(row: Row):
    for command in row.ours:
        program, *arguments = command.split()
        assert program == "aaiclick"
        if arguments[0] == "migrate" and arguments[1:]:  # parsed by its own parser
            assert run_migrate_command([*arguments[1:], "--help"], pytest.fail, pytest.fail) == 0
            continue
        result = CliRunner().invoke(cli, [*arguments, "--help"])
        assert result.exit_code == 0, result.output
        assert result.output.startswith("Usage:")


@pytest.mark.parametrize("row", read_rows("HTTP paths"), ids=str)
def test_http_paths_are_served(row: Row):
    served = {f"{route.method} {route.path}" for routes in ALL for route in routes.declared}
    assert set(row.ours) <= served


@pytest.mark.parametrize("row", read_rows("Keywords of DAG files"), ids=str)
def test_keywords_of_dag_files_are_in_the_schema(row: Row):
    schema = build_json_schema()
    pattern = schema["$defs"]["DefinitionSpec"]["properties"]["runtime"]["pattern"]
    for keyword in row.ours:
        assert f"'{keyword}'" in str(schema) or re.search(pattern, keyword), keyword


def test_the_page_is_linked_from_the_specification():
    assert "(names.md)" in (Path(PAGE).parent / "spec.md").read_text(encoding="utf-8")
