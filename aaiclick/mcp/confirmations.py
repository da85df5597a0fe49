"""Confirmations of changes: a plan is answered with a signed token, and performed when the token comes back.

Tokens are signed and not stored, so that a plan of one server can be confirmed at another one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aaiclick.errors import ConflictError
from aaiclick.mcp.tool_results import Answer

TOKEN_SECONDS = 600
SIGNATURE_DIGITS = 32

Consume = Callable[[str], int]
"""Marks a token as used and returns the number of changes that are left; raises ConflictError."""


@dataclass(frozen=True)
class Confirmations:
    """Issues and checks the tokens of one caller."""

    key: bytes = field(repr=False)
    consume: Consume

    def perform(self, plan: str, confirm: str, change: Callable[[], object]) -> Answer:
        """Perform a change if `confirm` is the unused token of the same plan; otherwise return the plan and a token.

        The plan has to name all that decides what the change does.
        """
        if not confirm:
            token = self._sign(plan, f"{int(time.time()) + TOKEN_SECONDS:x}-{secrets.token_hex(4)}")
            return {"plan": plan, "confirm": token, "next": "Show the plan; call again with this token to perform it."}
        head, _, _ = confirm.rpartition("-")
        signed = self._sign(plan, head)
        if _parse_expiry(head) < time.time() or not hmac.compare_digest(signed.encode(), confirm.encode()):
            raise ConflictError(
                "The token does not belong to this call, or has expired.",
                remedy="Call the tool without 'confirm' to get a new plan and token.",
            )
        changes_left = self.consume(confirm)
        return {"done": plan, "result": change(), "changes_left": changes_left}

    def _sign(self, plan: str, head: str) -> str:
        """Append the signature to the head of a token, which has its expiry and a nonce."""
        signature = hmac.new(self.key, f"{head} {plan}".encode(), hashlib.sha256).hexdigest()
        return f"{head}-{signature[:SIGNATURE_DIGITS]}"


def _parse_expiry(head: str) -> int:
    try:
        return int(head.partition("-")[0], 16)
    except ValueError:
        return 0


@dataclass
class SessionBudget:
    """The tokens and changes of one session over standard input and output."""

    changes_left: int
    _used: set[str] = field(default_factory=set[str])

    def consume(self, token: str) -> int:
        if token in self._used:
            raise token_used()
        if self.changes_left <= 0:
            raise ConflictError(
                "The changes of this session are used up.", remedy="A person can restart 'aaiclick mcp --allow'."
            )
        self._used.add(token)
        self.changes_left -= 1
        return self.changes_left


def token_used() -> ConflictError:
    return ConflictError("The token was used.", remedy="Call the tool without 'confirm' to get a new plan and token.")
