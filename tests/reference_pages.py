"""Reference pages that follow from the code. `python -m tests.reference_pages` writes them; tests compare them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from prometheus_client.parser import text_string_to_metric_families

from aaiclick.cli.main import cli

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
CLI_PAGE = REFERENCE / "cli.md"
METRICS_PAGE = REFERENCE / "metrics.md"
DAG_PAGE = REFERENCE / "dag-file.md"
HTTP_PAGE = REFERENCE / "http.md"
DAG_SCHEMA = Path(__file__).parents[1] / "aaiclick" / "catalog" / "dags" / "dag.schema.json"
TYPE_NAMES = {
    "object": "mapping", "string": "text", "number": "number", "integer": "integer", "boolean": "true or false",
}  # fmt: skip
METHODS = ("get", "post", "put", "patch", "delete")


def list_commands(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """All commands that are not hidden, with the first sentence of their help."""
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from list_commands(child, f"{path} {name}")
    else:
        arguments = " ".join(
            part for part in command.collect_usage_pieces(click.Context(command)) if part != "[OPTIONS]"
        )
        yield f"{path} {arguments}".rstrip(), command.get_short_help_str(200)


def list_options(command: click.Command) -> list[tuple[str, str]]:
    """Usage and help of the options of a command."""
    context = click.Context(command)
    records = [
        parameter.get_help_record(context)
        for parameter in command.params
        if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    return [(f"`{record[0]}`", " ".join(record[1].split())) for record in records if record is not None]


def find_command(path: str) -> click.Command:
    command: click.Command = cli
    for name in path.split()[1:]:
        if not isinstance(command, click.Group):
            break
        child = command.get_command(click.Context(command), name)
        if child is None:
            break
        command = child
    return command


def render_cli_page() -> str:
    introduction = (
        "All commands with their options. [Command line](../cli.md) describes output, exit codes and remote use; "
        "`-o json` and `-o yaml` change the output of commands that list or show something."
    )
    commands = list(list_commands(cli, "aaiclick"))
    rows = [(f"`{usage}`", escape(help_text)) for usage, help_text in commands]
    page = [_render_page("Commands", introduction, ("command", "does"), rows), "## Options", ""]
    for usage, _ in commands:
        options = list_options(find_command(usage))
        if options:
            page += [
                f"### {usage}",
                "",
                *_render_table(("option", "meaning"), [map(escape, row) for row in options]),
                "",
            ]
    return "\n".join(page)


def escape(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("|", r"\|").replace("<", "&lt;")


def describe_type(schema: Mapping[str, Any]) -> str:
    """Name the values that a schema allows."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(describe_type(item) for item in alternatives if item.get("type") != "null"))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {describe_type(schema.get('items', {}))}"
    return {
        "object": "mapping",
        "string": "text",
        "number": "number",
        "integer": "integer",
        "boolean": "true or false",
    }.get(str(schema.get("type")), "any value")


def render_dag_page() -> str:
    """The page of the keys of DAG files, from their JSON Schema."""
    schema = json.loads(DAG_SCHEMA.read_text())
    page = [
        "# DAG file", "",
        "All keys of a DAG file, from `aaiclick/catalog/dags/dag.schema.json`. "
        "[DAGs and datasets](../dags.md) explains them; "
        "`aaiclick dag validate` checks a file.", "",
    ]  # fmt: skip
    for title, part in [("The file", schema), *sorted(schema["$defs"].items())]:
        if "properties" not in part:
            continue
        required = set(part.get("required", ()))
        rows = [
            (
                f"`{name}`{' (required)' if name in required else ''}",
                escape(describe_type(value)),
                describe_default(value),
            )
            for name, value in part["properties"].items()
        ]
        page += [f"## {title}", "", *_render_table(("key", "value", "default"), rows), ""]
    return "\n".join(page)


def describe_default(schema: Mapping[str, Any]) -> str:
    default = schema.get("default")
    plain = default not in (None, [], {}) and not isinstance(default, dict)
    return f"`{json.dumps(default)}`" if plain else ""


def render_http_page(document: Mapping[str, Any]) -> str:
    """The page of all paths of an OpenAPI document, by their first segment after the version."""
    page = [
        "# HTTP paths", "",
        "All paths of `GET /openapi.json`, which also has the schemas of bodies. "
        "[HTTP API](../api.md) describes credentials, errors, lists and idempotency.", "",
    ]  # fmt: skip
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for path, operations in document["paths"].items():
        segments = [part for part in path.split("/") if part and part not in ("v1", "internal")]
        for method in METHODS:
            if operation := operations.get(method):
                summary = operation.get("description") or operation.get("summary", "")
                parameters = ", ".join(
                    f"`{item['name']}`" for item in operation.get("parameters", ()) if item["in"] == "query"
                )
                row = (
                    f"`{method.upper()} {path}`",
                    escape(summary.partition("\n\n")[0].replace("\n", " ")),
                    parameters,
                )
                groups.setdefault(segments[0] if segments else "root", []).append(row)
    for name in sorted(groups):
        page += [f"## {name}", "", *_render_table(("request", "does", "parameters"), groups[name]), ""]
    return "\n".join(page)


def render_metrics_page(exposition: str) -> str:
    """The page of the metrics of an exposition in the format of Prometheus."""
    introduction = (
        "What `GET /metrics` answers. [Observability](../observability.md) has alert rules and a dashboard for them."
    )
    rows = [
        (f"`{family.name}{'_total' if family.type == 'counter' else ''}`", family.type, family.documentation)
        for family in text_string_to_metric_families(exposition)
    ]
    return _render_page("Metrics", introduction, ("metric", "type", "meaning"), sorted(rows))


def _render_page(title: str, introduction: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join([f"# {title}", "", introduction, "", *_render_table(columns, rows), ""])


def _render_table(columns: tuple[str, ...], rows: Iterable[Iterable[str]]) -> list[str]:
    table = [f"| {' | '.join(row)} |" for row in (columns, *rows)]
    table.insert(1, "|" + "---|" * len(columns))
    return table


def load_openapi() -> dict[str, Any]:
    """The OpenAPI document of a server; needs no database."""
    from aaiclick.server.app import create_app
    from aaiclick.server.app_state import AppState
    from aaiclick.server_addresses import PostgresEndpoint
    from aaiclick.settings import Settings

    return create_app(AppState(Settings(), PostgresEndpoint("nowhere", 1, "nobody", "none"))).openapi()


if __name__ == "__main__":
    CLI_PAGE.write_text(render_cli_page())
    DAG_PAGE.write_text(render_dag_page())
    HTTP_PAGE.write_text(render_http_page(load_openapi()))
