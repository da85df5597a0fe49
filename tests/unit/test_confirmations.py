"""Tokens of plans of AI assistants."""

from __future__ import annotations

import pytest

from aaiclick.errors import ConflictError
from aaiclick.mcp.confirmations import Confirmations, SessionBudget

PLAN = "Cancel job 1 (j)."


def confirm(key: bytes, plan: str, token: str) -> list[str]:
    """The changes that a token performs."""
    changes: list[str] = []
    Confirmations(key, SessionBudget(9).consume).perform(plan, token, lambda: changes.append(plan))
    return changes


def test_token_performs_its_plan_for_its_credential_only() -> None:
    answer = Confirmations(b"key", SessionBudget(9).consume).perform(PLAN, "", lambda: pytest.fail("performed"))
    token = str(answer["confirm"])
    assert confirm(b"key", PLAN, token) == [PLAN]
    head, _, signature = token.rpartition("-")
    expiry, _, nonce = head.partition("-")
    later = f"{int(expiry, 16) + 3600:x}"
    forged = [
        f"{head}-{'0' * len(signature)}", f"{later}-{nonce}-{signature}", f"0-{nonce}-{signature}", signature, "-", "é",
        f"{head}-", f"{expiry}-{'0' * len(nonce)}-{signature}",
    ]  # fmt: skip
    for key, plan, text in [(b"other", PLAN, token), (b"key", PLAN + " ", token), *((b"key", PLAN, t) for t in forged)]:
        with pytest.raises(ConflictError, match="does not belong to this call"):
            confirm(key, plan, text)
