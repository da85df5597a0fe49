"""Log retention: only old logs of tasks are deleted."""

import os
import time

import pytest

from aaiclick.orchestration.loops import log_retention


def test_logs_older_than_the_retention_are_deleted(tmp_path):
    names = ("12345.log", "999.log", "worker.log", "12345.txt", "12345.log.1")
    for name in names:
        (tmp_path / name).write_text("said")
    (tmp_path / "777.log").mkdir()
    (tmp_path / "888.log").symlink_to(tmp_path / "worker.log")
    old = time.time() - 100
    for name in (*names, "777.log"):
        if name != "999.log":
            os.utime(tmp_path / name, (old, old))
    assert log_retention.run_once(tmp_path, keep_seconds=60) == 1
    assert not (tmp_path / "12345.log").exists()
    assert {path.name for path in tmp_path.iterdir()} == {*names, "777.log", "888.log"} - {"12345.log"}


def test_missing_directory_has_no_logs(tmp_path):
    assert log_retention.run_once(tmp_path / "none", keep_seconds=60) == 0


@pytest.mark.parametrize("newest_is_ahead", [False, True])
def test_clock_that_jumped_forward_deletes_no_log(tmp_path, monkeypatch, newest_is_ahead):
    """The clock of the process, or of the machine: then new logs have the wrong time, too."""
    (tmp_path / "1.log").write_text("said")
    (tmp_path / "2.log").write_text("said")
    ahead = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: ahead)
    if newest_is_ahead:
        os.utime(tmp_path / "2.log", (ahead, ahead))
    assert log_retention.run_once(tmp_path, keep_seconds=60) == 0


def test_a_process_started_with_a_wrong_clock_deletes_no_log(tmp_path, monkeypatch):
    (tmp_path / "1.log").write_text("said")
    ahead = time.time() + 86_400
    monkeypatch.setattr(log_retention, "_STARTED", (ahead, time.monotonic()))
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert log_retention.run_once(tmp_path, keep_seconds=60) == 0
