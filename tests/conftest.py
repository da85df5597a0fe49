"""What all tests share."""

from __future__ import annotations

from tests.hatchery import HATCHERY


def pytest_unconfigure() -> None:
    HATCHERY.close()
