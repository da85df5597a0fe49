"""Flash messages, stored in a short-lived cookie."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.responses import Response

COOKIE = "aaiclick_flash"
MAX_AGE_SECONDS = 30
MAX_COOKIE_LENGTH = 2_000


@dataclass(frozen=True, slots=True)
class FlashMessage:
    """One message for the next page; `undo` is the URL that reverts the action, `fields` its form fields."""

    text: str
    level: str = "good"
    undo: str | None = None
    fields: dict[str, str] = field(default_factory=dict[str, str])

    def set_cookie(self, response: Response) -> None:
        text = json.dumps([self.text[:500], self.level, self.undo, self.fields])
        value = base64.urlsafe_b64encode(text.encode()).decode()
        if len(value) < MAX_COOKIE_LENGTH:
            response.set_cookie(COOKIE, value, max_age=MAX_AGE_SECONDS, httponly=True, samesite="lax")


def read_cookie(value: str | None) -> FlashMessage | None:
    """Parse the cookie's value; None if it is missing or malformed."""
    if not value or len(value) > MAX_COOKIE_LENGTH:
        return None
    try:
        match json.loads(base64.urlsafe_b64decode(value)):
            case [str(text), ("good" | "bad") as level, (str() | None) as undo, fields] if isinstance(fields, dict):
                items = cast("dict[str, Any]", fields).items()
                return FlashMessage(text, level, undo, {name: str(field_value) for name, field_value in items})
            case _:
                return None
    except ValueError:
        return None
