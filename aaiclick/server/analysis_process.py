"""Child process that runs functions for the server, one at a time: `python -m aaiclick.server.analysis_process`.

A frame is a length (4 bytes) and a pickle: (function, args, kwargs) on standard input, (is_error, result) on standard
output. The first argument is the CPU limit of a call in seconds; a call that exceeds it kills the process.
Parent and child trust each other; only the text in the arguments is untrusted.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import sys
from typing import Any, BinaryIO

from aaiclick.catalog import sql_yaml_analysis

MEMORY_BYTES = 2 << 30
NICE = 5
LENGTH = struct.Struct("!I")


PRELOADED = (sql_yaml_analysis,)
"""Imported before the first call, so that its CPU limit does not include the import."""


def main() -> None:
    requests, cpu_seconds = sys.stdin.buffer, float(sys.argv[1])
    with os.fdopen(os.dup(1), "wb") as responses:
        os.dup2(2, 1)  # output of libraries must not reach the parent as a frame
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.nice(NICE)
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # Ctrl-C reaches the whole process group; the parent stops this process
        write_frame(responses, None)
        while (request := read_frame(requests)) is not None:
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            response = _call_function(*request)
            signal.setitimer(signal.ITIMER_PROF, 0)
            write_frame(responses, response)


def _call_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    try:
        return False, function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  (raised again in the parent)
        return True, error


def read_frame(stream: BinaryIO) -> Any:
    head = stream.read(LENGTH.size)
    return pickle.loads(stream.read(LENGTH.unpack(head)[0])) if len(head) == LENGTH.size else None  # noqa: S301


def write_frame(stream: BinaryIO, value: object) -> None:
    data = pickle.dumps(value)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


if __name__ == "__main__":
    main()
