"""Parts of task logs."""

import pytest

from aaiclick.operations.log_files import trim_split_character


@pytest.mark.parametrize(
    ("data", "is_at_end", "expected"),
    [
        (b"abc", False, b"abc"),
        ("ä".encode()[:1], False, b""),
        ("aä".encode()[:2], False, b"a"),
        ("ä".encode(), False, "ä".encode()),
        ("€".encode()[:2], False, b""),
        ("x€".encode()[:3], False, b"x"),
        (b"\xff", True, b"\xff"),
        (b"", True, b""),
    ],
)
def test_log_part_ends_with_a_complete_character(data, is_at_end, expected):
    assert trim_split_character(data, is_at_end) == expected
