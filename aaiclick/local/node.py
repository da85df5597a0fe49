"""The ClickHouse child process: a real server out of the chdb-core wheel.

`chdb._chdb.query` runs the clickhouse-local program, which can listen since 26.7. This process starts the listener
and then keeps one endless query running, since the program ends with its last query. It is a private entry point of
that wheel, so it is used here and nowhere else; tests/integration/local says what we rely on.

The first line on standard input is the configuration directory, the data path and the protocols to listen for (no
secret is ever an argument). The end of standard input means that the keeper is gone: so are we, at once. ClickHouse
acknowledges nothing that a kill can lose.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from typing import Any

STAY = "SELECT sleepEachRow(0.25) FROM system.numbers SETTINGS max_block_size = 1, max_execution_time = 0 FORMAT Null"


def main() -> int:
    order = json.loads(sys.stdin.readline())
    engine: Any = importlib.import_module("chdb._chdb")  # it reads ./config.xml, so it comes before the chdir

    os.chdir(order["configuration"])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    listen = "".join(f"SYSTEM START LISTEN {protocol}; " for protocol in order.get("listen", ["HTTP"]))
    answer = engine.query(listen + STAY, "TabSeparated", path=order["data"])
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
