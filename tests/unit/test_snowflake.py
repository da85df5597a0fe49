"""Snowflake ids are unique across threads, processes, forks, restarts and clock steps."""

import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaiclick.errors import SettingsError
from aaiclick.snowflake import (
    EPOCH_MS,
    MAX_SEQUENCE,
    MAX_TIMESTAMP,
    SnowflakeGenerator,
    extract_machine_id,
    extract_sequence,
    extract_timestamp,
    get_snowflake_id,
    get_snowflake_ids,
    lease_machine_id,
)

NOW_MS = EPOCH_MS + 86_400_000
YEAR_MS = 366 * 86_400_000


class Clock:
    def __init__(self, ms: int = NOW_MS) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms * 1_000_000


@pytest.fixture
def slots(tmp_path):
    return tmp_path / "slots"


def generator_on(slots, clock, first=0, last=1023):
    return SnowflakeGenerator(lambda now: lease_machine_id(first, last, now, slots), clock)


def test_id_contains_time_machine_id_and_sequence(slots):
    new_id = generator_on(slots, Clock(), 7, 7).next_id()
    assert (extract_timestamp(new_id), extract_machine_id(new_id), extract_sequence(new_id)) == (NOW_MS, 7, 0)
    assert 0 < new_id < 2**63


def test_the_timestamp_is_unix_time():
    before = time.time_ns() // 1_000_000
    new_id = get_snowflake_id()
    assert before <= extract_timestamp(new_id) <= time.time_ns() // 1_000_000 + 1_000


@given(steps=st.lists(st.tuples(st.integers(-5_000, 5_000), st.integers(1, 9_000)), min_size=1, max_size=12))
def test_ids_increase_when_the_clock_steps_back(steps, tmp_path_factory):
    clock = Clock()
    generator = generator_on(tmp_path_factory.mktemp("slots"), clock)
    ids: list[int] = []
    for step, count in steps:
        clock.ms += step
        ids += generator.next_ids(count)
        ids.append(generator.next_id())
    assert ids == sorted(set(ids))


def test_exhausted_sequence_uses_the_next_millisecond(slots):
    generator = generator_on(slots, Clock())
    ids = generator.next_ids(MAX_SEQUENCE + 2)
    assert extract_timestamp(ids[-1]) == NOW_MS + 1
    assert len(set(ids)) == len(ids)


def test_ids_increase_after_a_restart_with_an_earlier_clock(slots):
    clock = Clock()
    first = lease_machine_id(3, 3, clock.ms, slots)
    last_before = SnowflakeGenerator(lambda now: first, clock).next_id()
    first.release()
    clock.ms -= 3_600_000
    assert generator_on(slots, clock, 3, 3).next_id() > last_before


def test_slot_with_a_mark_in_the_past_is_preferred(slots):
    ahead = lease_machine_id(0, 0, NOW_MS, slots)
    ahead.reserve(NOW_MS + 60_000)
    ahead.release()
    assert lease_machine_id(0, 1, NOW_MS, slots).machine_id == 1


def test_clock_set_back_by_a_year_leaves_ids_to_issue(slots):
    for machine_id in range(2):
        lease = lease_machine_id(machine_id, machine_id, NOW_MS, slots)
        lease.reserve(NOW_MS + YEAR_MS + machine_id)
        lease.release()
    generator = generator_on(slots, Clock(), 0, 1)
    first = generator.next_id()
    assert extract_machine_id(first) == 0  # the earliest mark
    assert extract_timestamp(first) > NOW_MS + YEAR_MS
    assert generator.next_id() > first


def test_a_machine_id_is_leased_once(slots):
    leases = [lease_machine_id(10, 13, NOW_MS, slots) for _ in range(4)]
    assert sorted(lease.machine_id for lease in leases) == [10, 11, 12, 13]
    with pytest.raises(SettingsError, match="All 4 snowflake machine ids from 10 to 13 are in use"):
        lease_machine_id(10, 13, NOW_MS, slots)
    leases[2].release()
    assert lease_machine_id(10, 13, NOW_MS, slots).machine_id == leases[2].machine_id


def test_damaged_slot_file_is_usable(slots):
    lease_machine_id(1, 1, NOW_MS, slots).release()
    (slots / "0001").write_text("rubbish")
    assert lease_machine_id(1, 1, NOW_MS, slots).mark_ms == 0


def test_a_clock_before_the_epoch_is_an_error(slots):
    with pytest.raises(SettingsError, match="outside the range of snowflake ids"):
        generator_on(slots, Clock(EPOCH_MS - 1)).next_id()


def test_ids_are_unique_across_threads():
    lists: list[list[int]] = [[] for _ in range(8)]
    threads = [
        threading.Thread(target=lambda ids=ids: ids.extend(get_snowflake_id() for _ in range(5_000))) for ids in lists
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({new_id for ids in lists for new_id in ids}) == 40_000


def test_ids_are_unique_across_processes():
    program = "from aaiclick.snowflake import *; print(*get_snowflake_ids(2000))"
    children = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    ids = get_snowflake_ids(2000)
    for child in children:
        ids += map(int, child.communicate()[0].split())
    assert len(set(ids)) == 10_000


def test_forked_child_leases_its_own_machine_id():
    mine = extract_machine_id(get_snowflake_id())
    program = (
        "import os; from aaiclick.snowflake import *; a = get_snowflake_id(); r, w = os.pipe();\n"
        "if os.fork() == 0: os.write(w, b'%d' % get_snowflake_id()); os._exit(0)\n"
        "print(extract_machine_id(a), extract_machine_id(int(os.read(r, 99))))"
    )
    parent, child = map(int, subprocess.check_output([sys.executable, "-c", program]).split())
    assert len({mine, parent, child}) == 3


def test_another_users_slot_file_can_be_leased(slots):
    if os.geteuid() != 0:
        pytest.skip("changing the owner of a file needs root")
    lease_machine_id(5, 5, NOW_MS, slots).release()
    os.chown(slots / "0005", 12345, 12345)
    assert lease_machine_id(5, 5, NOW_MS, slots).machine_id == 5


def test_removed_slot_is_given_up(slots):
    """Another process may have leased the new file of that name."""
    clock = Clock()
    generator = generator_on(slots, clock, 4, 5)
    first = extract_machine_id(generator.next_id())
    (slots / f"{first:04d}").unlink()
    other = lease_machine_id(first, first, clock.ms, slots)
    clock.ms += 2_000
    assert extract_machine_id(generator.next_id()) != first
    other.release()


@pytest.mark.parametrize("text", ["9" * 20, str(EPOCH_MS + MAX_TIMESTAMP)])
def test_invalid_mark_makes_a_slot_unusable(slots, text):
    lease_machine_id(1, 1, NOW_MS, slots).release()
    (slots / "0001").write_text(text)
    assert lease_machine_id(1, 2, NOW_MS, slots).machine_id == 2
    with pytest.raises(SettingsError, match="in use on this machine, or unusable"):
        lease_machine_id(1, 1, NOW_MS, slots)


def test_slots_that_are_not_files_are_skipped(slots, tmp_path):
    lease_machine_id(9, 9, NOW_MS, slots).release()
    os.mkfifo(slots / "0001")
    (slots / "0002").mkdir()
    (slots / "0003").symlink_to(tmp_path / "target")
    assert lease_machine_id(1, 4, NOW_MS, slots).machine_id == 4
    assert not (tmp_path / "target").exists()


def test_unsafe_slot_directory_is_refused(slots):
    if os.geteuid() != 0:
        pytest.skip("changing the owner of a directory needs root")
    slots.mkdir(mode=0o777)
    os.chown(slots, 12345, 12345)
    with pytest.raises(SettingsError, match="any user can remove its files"):
        lease_machine_id(1, 1, NOW_MS, slots)
