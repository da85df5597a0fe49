"""The ClickHouse child process: a ClickHouse server from the chdb-core wheel.

`chdb._chdb.query` runs the clickhouse-local program, which can listen since 26.7. This process starts the listener
and then keeps one endless query running, since the program exits with its last query. `_chdb` is private to that
wheel, so only this module uses it; tests/integration/local covers the behaviour that we rely on.

The first line of standard input holds the configuration directory, the data path and the protocols to listen for (no
secret is an argument). At the end of standard input the keeper has ended, and the process exits at once: ClickHouse
acknowledges nothing that a kill can lose.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from typing import Any

KEEP_ALIVE_QUERY = (
    "SELECT sleepEachRow(0.25) FROM system.numbers SETTINGS max_block_size = 1, max_execution_time = 0 FORMAT Null"
)


def main() -> int:
    options = json.loads(sys.stdin.readline())
    engine: Any = importlib.import_module("chdb._chdb")  # reads ./config.xml: import before the chdir

    os.chdir(options["configuration"])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    listen = "".join(f"SYSTEM START LISTEN {protocol}; " for protocol in options.get("listen", ["HTTP"]))
    answer = engine.query(listen + KEEP_ALIVE_QUERY, "TabSeparated", path=options["data"])
    if answer.has_error():
        sys.stderr.write(answer.error_message() + "\n")
        return 1
    return 0


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
