"""Temporary directories: nobody's stay, and nobody takes another's."""

from __future__ import annotations

import os
import tempfile

import pytest

from aaiclick.scratch import YOUNG_SECONDS, scratch_directory


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def old(path) -> None:
    long_ago = path.lstat().st_mtime - 2 * YOUNG_SECONDS
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)


def test_it_goes_with_its_block_and_all_that_is_in_it(temporary):
    with scratch_directory("logs-") as made:
        (made / "below").mkdir()
        (made / "below" / "file").touch()
        assert made.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_of_its_kind(temporary):
    left = [temporary / "logs-dead", temporary / "logs-young", temporary / "other-dead"]
    for path in left:
        path.mkdir()
        (path / "file").touch()
    old(left[0])
    old(left[2])
    (temporary / "logs-link").symlink_to(left[2])
    old(temporary / "logs-link")
    with scratch_directory("logs-") as used:
        old(used)
        with scratch_directory("logs-"):
            assert used.exists()
    assert sorted(path.name for path in temporary.iterdir()) == ["logs-link", "logs-young", "other-dead"]
    assert (temporary / "other-dead" / "file").exists()
