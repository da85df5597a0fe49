"""Logs for machines: one JSON object per line, with the job, the task, the organisation and the attempt it is about."""

from __future__ import annotations

import json
import logging
import time
from typing import Any, TextIO

from aaiclick.orchestration.scope import current_scope

FACTS = "facts"
"""The attribute of a record (`extra={FACTS: {…}}`) whose entries become fields of the line."""


class JsonLines(logging.Formatter):
    """Makes the lines."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        scope = current_scope()
        if scope is not None:
            line |= facts_of(scope.org_id, scope.job_id, scope.lease.task_id, scope.lease.attempt)
        line |= getattr(record, FACTS, {})
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        if scope is not None:
            message = scope.redactor.redact(message)
        return json.dumps(line | {"message": message}, default=str)


def facts_of(org_id: object, job_id: int | None, task_id: int, attempt: int) -> dict[str, Any]:
    """Ids are text, as everywhere outside: JavaScript loses their last digits."""
    return {
        "org": str(org_id),
        "job": None if job_id is None else str(job_id),
        "task": str(task_id),
        "attempt": attempt,
    }


def json_handler(stream: TextIO) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    return handler
