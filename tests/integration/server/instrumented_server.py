"""`aaiclick server start` in a process that measures the CPU time of every callback of its event loop.

The file named by CALLBACK_LOG gets a line for each callback that took more than CALLBACK_MS: milliseconds, callback.
CPU time of the thread is measured, so that a busy machine does not change the result. LIMITS (JSON) replaces
constants: {"aaiclick.server.connection_time_limits.HEADER_SECONDS": 1}. The loop is asyncio's: uvloop's
callbacks cannot be measured.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import threading
import time

import uvloop

from aaiclick.cli.main import cli

CALLBACK_MS = 20.0


def measure(path: str) -> None:
    run = asyncio.Handle._run
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    main = threading.main_thread()

    collecting = [0.0, 0.0]  # start of the current garbage collection and the total: no single request causes them

    def note_collection(phase: str, _: dict[str, int]) -> None:
        if threading.current_thread() is main:
            if phase == "start":
                collecting[0] = time.thread_time()
            else:
                collecting[1] += time.thread_time() - collecting[0]

    gc.callbacks.append(note_collection)

    def measured(handle: asyncio.Handle) -> None:
        before = time.thread_time() - collecting[1]
        task = getattr(handle._callback, "__self__", None)
        frames = task.get_stack() if isinstance(task, asyncio.Task) else []
        run(handle)
        spent = (time.thread_time() - collecting[1] - before) * 1000
        if spent > CALLBACK_MS and threading.current_thread() is main:
            location = (
                f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else str(handle._callback)[:200]
            )
            os.write(descriptor, f"{spent:.1f} {location}\n".encode())

    asyncio.Handle._run = measured
    uvloop.run = asyncio.run


def replace_limits(limits: dict[str, float]) -> None:
    for name, value in limits.items():
        module, _, constant = name.rpartition(".")
        setattr(importlib.import_module(module), constant, value)


if __name__ == "__main__":
    measure(os.environ["CALLBACK_LOG"])
    replace_limits(json.loads(os.environ.get("LIMITS", "{}")))
    cli(["server", "start", "--port", "0"])
