"""Functions of the tests of secrets."""

from __future__ import annotations

import logging

from aaiclick.orchestration import get_secret


async def use(name):
    """Write a secret to every output of a task."""
    value = await get_secret(name)
    print("printed", value)
    logging.getLogger("tests").warning("logged %s", value)
    raise ValueError(f"raised {value}")


async def length(name):
    return [{"length": len(await get_secret(name))}]


def given(event, token):
    print("printed", token)
    return [{"length": len(token)}]


def fails(token):
    raise ValueError(f"raised {token}")
