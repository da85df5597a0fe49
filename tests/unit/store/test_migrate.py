"""Output of `aaiclick migrate` without a database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from aaiclick import store
from aaiclick.errors import SchemaError
from aaiclick.server_addresses import PostgresEndpoint
from aaiclick.store.migrate import run_migrate_command
from aaiclick.store.migrations import HEAD


def no_database() -> PostgresEndpoint:
    raise AssertionError("this command needs no database")


def test_head_equals_alembics_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(store.__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["history"], "<base> -> 0001 (head), The first schema.\n"),
        (["heads"], "0001 (head)\n"),
        (["branches"], ""),
    ],
)
def test_listings(argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_migrate_command(argv, no_database, no_database) == 0
    assert capsys.readouterr().out == expected


def test_show_describes_a_revision(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_migrate_command(["show", "0001"], no_database, no_database) == 0
    assert "The first schema" in capsys.readouterr().out


def test_unknown_revision_is_a_schema_error() -> None:
    with pytest.raises(SchemaError, match="nonsense") as caught:
        run_migrate_command(["show", "nonsense"], no_database, no_database)
    assert "aaiclick migrate history" in caught.value.remedy


def test_unknown_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_migrate_command(["sideways"], no_database, no_database) == 2
    assert "usage: aaiclick migrate" in capsys.readouterr().err


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_migrate_command(["--help"], no_database, no_database) == 0
    output = capsys.readouterr().out
    for command in ("upgrade", "downgrade", "current", "history", "stamp", "check", "heads", "branches", "show"):
        assert command in output


def test_migrate_does_not_import_alembic() -> None:
    program = "import sys; import aaiclick.store.migrate; assert not {'alembic', 'sqlmodel'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
