"""Child process that runs functions for the server, one at a time: `python -m aaiclick.server.analysis_process`.

A frame is a length (4 bytes) and a pickle: (function, args, kwargs) on standard input, (is_error, result) on standard
output. A call that takes more processor time than the first argument says (seconds) ends the process, whatever it does
at that moment.
The parent trusts the functions and the child trusts the parent; what is hostile is the text in the arguments.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import struct
import sys
from typing import Any, BinaryIO

from aaiclick.catalog import analysis

MEMORY_BYTES = 2 << 30
NICE = 5
LENGTH = struct.Struct("!I")


PRELOADED = (analysis,)
"""Imported before the first call, whose time is limited."""


def main() -> None:
    requests, cpu_seconds = sys.stdin.buffer, float(sys.argv[1])
    with os.fdopen(os.dup(1), "wb") as responses:
        os.dup2(2, 1)  # what a library prints must not reach the parent as a frame
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        os.nice(NICE)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent ends this process
        write_frame(responses, None)
        while (request := read_frame(requests)) is not None:
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            response = _call(*request)
            signal.setitimer(signal.ITIMER_PROF, 0)
            write_frame(responses, response)


def _call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    try:
        return False, function(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  (it is raised in the parent)
        return True, error


def read_frame(stream: BinaryIO) -> Any:
    head = stream.read(LENGTH.size)
    return pickle.loads(stream.read(LENGTH.unpack(head)[0])) if len(head) == LENGTH.size else None  # noqa: S301


def write_frame(stream: BinaryIO, value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


if __name__ == "__main__":
    main()
