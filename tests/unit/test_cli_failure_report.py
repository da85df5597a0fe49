"""The report of a failed job names the arguments of its tasks."""

from __future__ import annotations

import pytest

from aaiclick.cli.failure_report import format_arguments


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"orders": {"object_type": "task", "task_id": "7"}, "region": "north"}, "orders=…, region='north'"),
        ({"totals": {"north": {"object_type": "object"}}, "rows": [1, 2]}, "totals={'north': …}, rows=[1, 2]"),
        ({"text": "x" * 500}, "text='" + "x" * 93 + "…"),
        ({}, ""),
        (None, ""),
    ],
)
def test_arguments_are_formatted_without_references(kwargs: object, text: str) -> None:
    assert format_arguments(kwargs) == text
