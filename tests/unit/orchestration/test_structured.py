"""Logs for machines: whoever writes within a task need not say which."""

from __future__ import annotations

import io
import json
import logging
from contextvars import copy_context
from uuid import uuid4

from aaiclick.orchestration.scope import TaskScope, enter_scope
from aaiclick.orchestration.structured import FACTS, json_handler
from aaiclick.store.leases import Lease
from aaiclick.targets import ServerTarget


def test_a_line_names_the_task_that_wrote_it() -> None:
    stream, org = io.StringIO(), uuid4()
    log = logging.Logger("app")
    log.addHandler(json_handler(stream))

    def task() -> None:
        enter_scope(TaskScope(Lease(2**60, 3, uuid4()), org, 5, None, ServerTarget("http://nowhere")))
        log.warning("half of %s", "it", extra={FACTS: {"rows": 7}})
        try:
            raise ValueError("two\nlines")
        except ValueError:
            log.exception("it broke")

    copy_context().run(task)
    log.info("outside")
    first, second, third = map(json.loads, stream.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "warning", "logger": "app", "org": str(org), "job": "5", "task": str(2**60), "attempt": 3, "rows": 7,
        "message": "half of it",
    }  # fmt: skip
    assert "ValueError: two\nlines" in second["message"]
    assert "task" not in third
