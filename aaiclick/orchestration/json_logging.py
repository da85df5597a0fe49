"""JSON logging: one JSON object per line, with organisation, job, task and attempt."""

from __future__ import annotations

import json
import logging
import time
from typing import TextIO

from aaiclick.orchestration.task_context import current_scope

LOG_FIELDS = "facts"
"""Attribute of a record (`extra={LOG_FIELDS: {…}}`) with additional fields of the line."""


class JsonFormatter(logging.Formatter):
    """Formats records as JSON objects."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        scope = current_scope()
        if scope is not None:
            fields |= attempt_fields(scope.org_id, scope.job_id, scope.lease.task_id, scope.lease.attempt)
        fields |= getattr(record, LOG_FIELDS, {})
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        if scope is not None:
            message = scope.redactor.redact(message)
        return json.dumps(fields | {"message": message}, default=str)


def attempt_fields(org_id: object, job_id: int | None, task_id: int, attempt: int) -> dict[str, object]:
    """Fields of an attempt. Ids are strings: JavaScript loses their last digits."""
    return {
        "org": str(org_id),
        "job": None if job_id is None else str(job_id),
        "task": str(task_id),
        "attempt": attempt,
    }


def make_json_handler(stream: TextIO) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    return handler
