"""What the README shows works as it is written."""

import json
import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_job_of_the_readme_runs(aaiclick, tmp_path, aaiclick_postgres, aaiclick_clickhouse):
    code = re.search(r"```python\n# (\w+\.py)\n(.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    (tmp_path / code.group(1)).write_text(code.group(2))
    ran = aaiclick(
        "run", "trips.distances", "-o", "json",
        AAICLICK_DATABASE_URL=aaiclick_postgres.dsn,
        AAICLICK_CLICKHOUSE_URL=aaiclick_clickhouse.url,
        AAICLICK_LOG_DIR=str(tmp_path / "logs"),
    )  # fmt: skip
    assert ran.returncode == 0, ran
    assert json.loads(ran.stdout)[0]["tasks"] == "3/3"


def test_every_command_of_the_readme_exists(aaiclick):
    shown = re.findall(r"^aaiclick ([a-z]+)(?: ([a-z]+))?", README.read_text(), re.MULTILINE)
    assert shown
    for command, verb in shown:
        arguments = [command, *([verb] if verb in ("start", "ls") else []), "--help"]
        assert aaiclick(*arguments).returncode == 0, arguments
