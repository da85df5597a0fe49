"""What a page says of the deed before it: carried over the redirect by a cookie that lives for one page."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.responses import Response

COOKIE = "aaiclick_said"
SECONDS = 30
LONGEST = 2_000


@dataclass(frozen=True, slots=True)
class Said:
    """One message; `undo` is the address of the form that takes the deed back, with its fields."""

    words: str
    kind: str = "good"
    undo: str | None = None
    fields: dict[str, str] = field(default_factory=dict[str, str])

    def write(self, response: Response) -> None:
        text = json.dumps([self.words[:500], self.kind, self.undo, self.fields])
        value = base64.urlsafe_b64encode(text.encode()).decode()
        if len(value) < LONGEST:
            response.set_cookie(COOKIE, value, max_age=SECONDS, httponly=True, samesite="lax")


def read(value: str | None) -> Said | None:
    """What the cookie says; None if it is not ours."""
    if not value or len(value) > LONGEST:
        return None
    try:
        match json.loads(base64.urlsafe_b64decode(value)):
            case [str(words), ("good" | "bad") as kind, (str() | None) as undo, fields] if isinstance(fields, dict):
                texts = cast("dict[str, Any]", fields)
                return Said(words, kind, undo, {name: str(text) for name, text in texts.items()})
            case _:
                return None
    except ValueError:
        return None
