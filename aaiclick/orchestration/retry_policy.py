"""Retry policy: whether and when a failed attempt is retried.

The delay before the n-th retry is `base · 2^n`, at most `cap`, plus up to 10 % jitter, so that tasks which failed
together are not retried together.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aaiclick.errors import AaiclickError, EntrypointError, SubmitError

JITTER = 0.1
_VARIABLE_PART = re.compile(r"0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d+")


class PermanentError(AaiclickError):
    """Raise it in a task to fail it without retries.

    ```python
    @task
    def check_number(text: str) -> None:
        if not text.isdigit():
            raise PermanentError(f"{text!r} is not a number.", remedy="Correct the file.")
    ```
    """


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delay between retries. A task's own policy applies first, then that of its type, then this default.

    ```python
    RetryPolicy(base_seconds=2, cap_seconds=60).delay_seconds(failures=3, jitter=0)  # 16.0
    ```
    """

    base_seconds: float = 1.0
    cap_seconds: float = 3600.0

    def __post_init__(self) -> None:
        if not (0 <= self.base_seconds < float("inf") and 0 <= self.cap_seconds < float("inf")):
            raise SubmitError(
                f"A retry policy cannot wait from {self.base_seconds:g} s up to {self.cap_seconds:g} s.",
                remedy="Give both as numbers of seconds, zero or more.",
            )

    def to_json(self) -> str:
        return json.dumps({"base_seconds": self.base_seconds, "cap_seconds": self.cap_seconds})

    @staticmethod
    def from_json(text: str | None) -> RetryPolicy:
        """Policy from JSON text, or the default."""
        if not text:
            return DEFAULT
        fields: dict[str, Any] = json.loads(text)
        return RetryPolicy(
            float(fields.get("base_seconds", DEFAULT.base_seconds)),
            float(fields.get("cap_seconds", DEFAULT.cap_seconds)),
        )

    def delay_seconds(self, failures: int, jitter: float | None = None) -> float:
        """Delay after the `failures`-th failure: base · 2^failures; `jitter` in [0, 1) replaces the random part."""
        exponent = min(max(failures, 1), 62)
        delay = min(self.base_seconds * 2.0**exponent, self.cap_seconds)
        return delay * (1 + JITTER * (random.random() if jitter is None else jitter))  # noqa: S311  (not a secret)


DEFAULT = RetryPolicy()


def is_permanent(error: BaseException) -> bool:
    """Whether an error is not worth a retry."""
    if isinstance(error, PermanentError | EntrypointError):
        return True
    with contextlib.suppress(Exception):  # the attribute is the task's code and may raise
        return bool(getattr(error, "permanent", False))
    return False


def error_fingerprint(error: BaseException, redact: Callable[[str], str] = str) -> str:
    """Fingerprint that is equal for errors which differ only in numbers, addresses and ids; groups dead letters."""
    frames: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename}:{code.co_qualname}")
        trace = trace.tb_next
    shape = _VARIABLE_PART.sub("#", redact(_error_text(error)))[:500]
    text = f"{type(error).__qualname__}|{frames[-1:]}|{shape}"
    digest = hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:12]
    return f"{type(error).__name__}:{digest}"


def _error_text(error: BaseException) -> str:
    with contextlib.suppress(Exception):
        return str(error)
    return ""
