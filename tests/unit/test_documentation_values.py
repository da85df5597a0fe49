"""Settings, JSON values and configurations of other programs in the documentation agree with the code and `deploy/`."""

from __future__ import annotations

import configparser
import fnmatch
import json
import re
import shlex
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from aaiclick.api.workers import QueueScale
from aaiclick.orchestration.worker.log_shipping import spool_path
from aaiclick.settings import load_settings
from aaiclick.store.engine.leases_and_outcomes import Lease
from tests.documentation import BLOCKS, ROOT, Block, check_command

EXPORT = re.compile(r"export AAICLICK_\w+=")
UNITS = ROOT / "deploy" / "systemd"


def select_blocks(page: str, language: str) -> list[Block]:
    return [block for block in BLOCKS if (block.page, block.language) == (page, language)]


def read_unit_environment(name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parser.read_string((UNITS / name).read_text())
    return dict(assignment.split("=", 1) for assignment in shlex.split(parser["Service"]["environment"]))


@pytest.mark.parametrize("block", [block for block in BLOCKS if EXPORT.search(block.text)], ids=str)
def test_exported_settings_are_valid(block: Block, monkeypatch) -> None:
    for line in block.lines:
        if EXPORT.match(line):
            for assignment in shlex.split(line, comments=True)[1:]:
                monkeypatch.setenv(*assignment.replace("…", "password").split("=", 1))
    load_settings()


def test_answer_about_the_load_of_a_queue_has_all_fields() -> None:
    [block] = select_blocks("deployment.md", "json")
    fields = json.loads(block.text)
    assert QueueScale.model_validate(fields).tasks == fields["waiting"] + fields["running"]
    assert list(fields) == list(QueueScale.model_fields)


def test_local_assistant_starts_an_existing_command() -> None:
    program = json.loads(select_blocks("mcp.md", "json")[0].text)["mcpServers"]["aaiclick"]
    assert program["command"] == "aaiclick"
    check_command(program["args"])


def read_log_shippers() -> tuple[dict[str, Any], dict[str, Any]]:
    """Configurations of Vector and Fluent Bit."""
    _, vector, fluent_bit = [yaml.safe_load(block.text) for block in select_blocks("observability.md", "yaml")]
    return vector, fluent_bit


def test_vector_reads_the_units_and_the_directory_of_task_logs() -> None:
    vector, _ = read_log_shippers()
    parts = vector["sources"] | vector["transforms"]
    assert all(name in parts for part in (vector["transforms"] | vector["sinks"]).values() for name in part["inputs"])
    units = [re.sub(r"@\w+$", "@", name) + ".service" for name in vector["sources"]["aaiclick"]["include_units"]]
    for unit in units:
        environment = read_unit_environment(unit)
        assert environment["AAICLICK_LOG_FORMAT"] == "json"
        path = spool_path(Path(environment["AAICLICK_LOG_DIR"]), Lease(7, 1, uuid4()))
        assert any(fnmatch.fnmatch(str(path), pattern) for pattern in vector["sources"]["tasks"]["include"])


def test_fluent_bit_parses_the_lines_of_a_unit() -> None:
    _, fluent_bit = read_log_shippers()
    [source], [parse], [sink] = (fluent_bit["pipeline"][part] for part in ("inputs", "filters", "outputs"))
    assert (UNITS / source["systemd_filter"].removeprefix("_SYSTEMD_UNIT=")).exists()
    assert {parse["match"], sink["match"]} == {source["tag"]}
    assert parse["parser"] in {parser["name"] for parser in fluent_bit["parsers"]}
