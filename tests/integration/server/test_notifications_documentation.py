"""docs/notifications.md: its commands and its example run as written, and its tables match the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import get_args

from click.testing import CliRunner

from aaiclick.api.notifications import CONFIGS
from aaiclick.cli.main import cli
from aaiclick.client import Client
from aaiclick.settings import get_settings
from aaiclick.store.enums import DEFAULT_ORG_ID, IncidentRule

PAGE = (Path(__file__).parents[3] / "docs" / "notifications.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.strip().splitlines()]
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
HOOK = "https://hooks.example.org/aaiclick"


def test_every_command_runs(site, monkeypatch, hook) -> None:
    url, received = f"{hook[0]}/in", hook[1]
    for name, value in {**site.environment, "AAICLICK_PRIVATE_HOSTS": "127.0.0.1"}.items():
        if name.startswith("AAICLICK_"):
            monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    site.sql(
        "INSERT INTO incidents (id, org_id, rule, fingerprint, severity, title) OVERRIDING SYSTEM VALUE"
        " VALUES (1, $1, 'job_failed', 'f', 'error', 'It broke') RETURNING id",
        DEFAULT_ORG_ID,
    )
    for line in COMMANDS:
        text, pipe, program = line.replace(HOOK, url).rpartition(" | ")
        arguments = shlex.split(program)
        assert arguments.pop(0) == "aaiclick"
        value = shlex.split(text)[1] if pipe else None
        result = CliRunner().invoke(cli, arguments, value, standalone_mode=False)
        assert result.exception is None, (line, result.exception)
    get_settings.cache_clear()
    assert len(received) == 1
    assert b"Test of the channel ops" in received[0]


def test_python_example_runs(site) -> None:
    names: dict[str, object] = {}
    exec(compile(EXAMPLE, "docs/notifications.md", "exec"), names)
    site.sql(
        "INSERT INTO incidents (id, org_id, rule, fingerprint, severity, title) OVERRIDING SYSTEM VALUE"
        " VALUES (900, $1, 'job_failed', 'x', 'error', 'Job nightly: task load failed') RETURNING id",
        DEFAULT_ORG_ID,
    )
    with Client(site.server.url, site.keys["operator-admin"]) as client:
        assert "error: Job nightly: task load failed" in names["set_up"](client)


def test_tables_have_all_rules_and_types() -> None:
    rules = re.findall(r"^\| `(\w+)` \| .* \| .* \|$", PAGE, re.MULTILINE)
    assert rules == list(get_args(IncidentRule))
    types = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[\w`, ]+`) \| [^|]* \|$", PAGE, re.MULTILINE)))
    assert types == list(CONFIGS)
