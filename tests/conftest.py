"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hatchery import Hatchery


@pytest.fixture(scope="session")
def hatchery() -> Iterator[Hatchery]:
    """Where commands are forked."""
    made = Hatchery()
    yield made
    made.close()
