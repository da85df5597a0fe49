"""Temporary directories: abandoned ones are removed, used ones are kept."""

from __future__ import annotations

import os
import tempfile

import pytest

from aaiclick.tempdirs import MIN_AGE_SECONDS, temporary_directory


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def make_old(path) -> None:
    long_ago = path.lstat().st_mtime - 2 * MIN_AGE_SECONDS
    os.utime(path, (long_ago, long_ago), follow_symlinks=False)


def test_directory_is_removed_with_its_contents(temporary):
    with temporary_directory("logs-") as directory:
        (directory / "below").mkdir()
        (directory / "below" / "file").touch()
        assert directory.stat().st_mode & 0o777 == 0o700
    assert list(temporary.iterdir()) == []


def test_abandoned_directory_is_removed_by_the_next_user(temporary):
    left = [temporary / "logs-dead", temporary / "logs-young", temporary / "other-dead"]
    for path in left:
        path.mkdir()
        (path / "file").touch()
    make_old(left[0])
    make_old(left[2])
    (temporary / "logs-link").symlink_to(left[2])
    make_old(temporary / "logs-link")
    with temporary_directory("logs-") as used:
        make_old(used)
        with temporary_directory("logs-"):
            assert used.exists()
    assert sorted(path.name for path in temporary.iterdir()) == ["logs-link", "logs-young", "other-dead"]
    assert (temporary / "other-dead" / "file").exists()
