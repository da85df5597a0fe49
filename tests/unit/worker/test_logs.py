"""Task logs: output of coroutines, threads, pools and logging goes to the log of its task."""

import asyncio
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from aaiclick.orchestration.worker import logs
from aaiclick.orchestration.worker.logs import LastAttempt, LogExcerpt, TaskLog, captured_output, set_log


async def speak(directory, number: int, turn: asyncio.Barrier) -> TaskLog:
    """One of several tasks with interleaved output."""
    log = TaskLog(directory / f"{number}.log", 1)
    set_log(log)
    for line in range(3):
        print(f"out {number} {line}")
        await turn.wait()
        print(f"err {number} {line}", file=sys.stderr)
        logging.getLogger("task").warning("logged %s %s", number, line)
        await asyncio.to_thread(print, f"thread {number} {line}")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(print, f"pool {number} {line}").result()
        own = threading.Thread(target=print, args=(f"own {number} {line}",))
        own.start()
        own.join()
    log.close()
    return log


async def test_concurrent_tasks_do_not_mix(tmp_path):
    turn = asyncio.Barrier(5)
    with captured_output():
        logs = await asyncio.gather(*(asyncio.create_task(speak(tmp_path, number, turn)) for number in range(5)))
    for number, log in enumerate(logs):
        lines = log.path.read_text().splitlines()[1:]
        assert len(lines) == 18
        assert all(f" {number} " in line for line in lines)


async def test_bytes_are_written_to_the_log_of_the_task(tmp_path):
    log = TaskLog(tmp_path / "1.log", 1)
    with captured_output():
        set_log(log)
        sys.stdout.buffer.write("\N{EURO SIGN} ".encode() + b"\xff\n")
        sys.stdout.buffer.flush()
        set_log(None)
    log.close()
    assert log.path.read_text().splitlines()[1:] == ["\N{EURO SIGN} \\xff"]


def test_last_attempt_of_a_log_is_found_across_chunks():
    last_attempt = LastAttempt()
    for chunk in ("=== attempt 1, NOW ===\nout\n=== att", "empt 2, NOW ===\n", "out\n"):
        last_attempt.feed(chunk)
    assert last_attempt.number == 2


def test_output_outside_of_tasks_is_unchanged(capsys):
    with captured_output():
        print("outside")
    assert capsys.readouterr().out == "outside\n"


def test_a_silent_task_has_no_file(tmp_path):
    log = TaskLog(tmp_path / "1.log", 1)
    log.close()
    assert not log.path.exists()


def test_a_log_is_capped_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LIMIT_BYTES", 100)
    log = TaskLog(tmp_path / "1.log", 1)
    for _ in range(1000):
        log.write("x" * 10)
    log.close()
    assert log.path.stat().st_size < 250
    assert "9900 bytes past the limit of 100 were dropped" in log.path.read_text()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_attempts_share_a_file_with_headings(tmp_path, size):
    for attempt in (1, 2, 3):
        log = TaskLog(tmp_path / "7.log", attempt)
        log.write(f"this is {attempt}\n")
        log.close()
    log = (tmp_path / "7.log").read_text() + "=== attempt what?"

    def read(attempt: int | None) -> str:
        excerpt = LogExcerpt(attempt)
        return (
            "".join(excerpt.feed(log[start : start + size]) for start in range(0, len(log), size))
            + excerpt.unfinished_line()
        )

    assert read(None) == log
    assert read(2).splitlines()[1:] == ["this is 2"]
    assert read(3).splitlines()[1:] == ["this is 3", "=== attempt what?"]
    assert read(9) == ""


def test_anything_can_be_printed(tmp_path):
    log = TaskLog(tmp_path / "1.log", 1)
    log.write("ünïcödé ☃ \udc80 \x00\n")
    log.close()
    assert "ünïcödé ☃ \\udc80 \x00" in log.path.read_text()


def test_streams_are_restored():
    before = (sys.stdout, threading.Thread.start, ThreadPoolExecutor.submit)
    with captured_output():
        assert sys.stdout is not before[0]
    assert (sys.stdout, threading.Thread.start, ThreadPoolExecutor.submit) == before


def test_full_disk_only_truncates_the_log(tmp_path):
    log = TaskLog(tmp_path / "1.log", 1)
    log.path.symlink_to("/dev/full")
    for _ in range(3):
        log.write("x" * 100_000)
    log.close()


def test_removed_log_directory_is_created_again(tmp_path):
    log = TaskLog(tmp_path / "gone" / "1.log", 1)
    log.write("said")
    log.close()
    assert "said" in log.path.read_text()


def test_invalid_log_directory_only_loses_the_log(tmp_path):
    (tmp_path / "file").touch()
    log = TaskLog(tmp_path / "file" / "1.log", 1)
    log.write("said")
    log.close()
    assert (tmp_path / "file").read_bytes() == b""


def test_text_is_in_the_file_before_a_line_ends(tmp_path):
    log = TaskLog(tmp_path / "1.log", 1)
    log.write("no line end")
    assert log.path.read_text().endswith("===\nno line end")
    log.close()


def test_attempt_heading_starts_a_new_line(tmp_path):
    torn = TaskLog(tmp_path / "1.log", 1)
    torn.write("torn")
    following = TaskLog(tmp_path / "1.log", 2)
    following.write("second\n")
    excerpt = LogExcerpt(2)
    assert excerpt.feed(torn.path.read_text()).splitlines()[1:] == ["second"]
    torn.close()
    following.close()


def test_output_after_the_end_of_an_attempt_is_not_in_its_log(tmp_path, capsys):
    log = TaskLog(tmp_path / "1.log", 1)
    with captured_output():
        before = set_log(log)
        print("within")
        log.close()
        print("after")
        set_log(before.old_value if isinstance(before.old_value, TaskLog) else None)
    assert "after" not in log.path.read_text()
    assert capsys.readouterr().out == "after\n"


def test_library_records_are_logged_only_on_request(tmp_path):
    log = TaskLog(tmp_path / "1.log", 1)
    library = logging.getLogger("sqlglot")
    with captured_output():
        before = set_log(log)
        logging.getLogger("sqlglot.optimizer").warning("noise")
        logging.getLogger("users.module").info("wanted")
        library.setLevel(logging.INFO)
        library.info("asked for")
        log.close()
        set_log(before.old_value if isinstance(before.old_value, TaskLog) else None)
    library.setLevel(logging.NOTSET)
    text = log.path.read_text()
    assert ("noise" in text, "wanted" in text, "asked for" in text) == (False, True, True)
