"""JSON logging: lines have the fields of the current task."""

from __future__ import annotations

import io
import json
import logging
from contextvars import copy_context
from uuid import uuid4

from aaiclick.orchestration.gateway.http import HttpAttemptGateway
from aaiclick.orchestration.json_logging import LOG_FIELDS, make_json_handler
from aaiclick.orchestration.task_context import TaskScope, enter_scope
from aaiclick.server_addresses import ServerEndpoint
from aaiclick.store.engine.leases_and_outcomes import Lease


def test_log_line_has_the_fields_of_its_task() -> None:
    stream, org = io.StringIO(), uuid4()
    log = logging.Logger("app")
    log.addHandler(make_json_handler(stream))

    def task() -> None:
        lease = Lease(2**60, 3, uuid4())
        gateway = HttpAttemptGateway(ServerEndpoint("http://nowhere"), lease, org, 5)
        enter_scope(TaskScope(lease, org, 5, None, gateway))
        log.warning("half of %s", "it", extra={LOG_FIELDS: {"rows": 7}})
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
