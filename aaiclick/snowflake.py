"""Snowflake ids: 64-bit, time-ordered, unique without a database query.

    bit 63     0, so that an id fits PostgreSQL's BIGINT
    bits 62-22 milliseconds since EPOCH_MS (41 bits: until 2093)
    bits 21-12 machine id (10 bits)
    bits 11-0  sequence within the millisecond (12 bits)

**Machine ids are leased.** Each process holds an exclusive `flock` on one of 1,024 slot files shared by all users of
the machine; the kernel releases it however the process ends. A forked child leases its own. Hosts that share a
database get disjoint ranges by AAICLICK_MACHINE_IDS.

**The clock may step back.** Within a process, the generator continues from the last millisecond it used. Across
processes, each slot file stores a mark, written before any id at or past it is issued; the next holder of the slot
starts after the mark. Free slots with a mark in the past are preferred, then those with the earliest mark: if all
processes of a day ran with a clock that was a year ahead, later ids have timestamps of that year.
"""

from __future__ import annotations

import fcntl
import os
import random
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from aaiclick.errors import SettingsError
from aaiclick.settings import get_settings

EPOCH_MS = 1_704_067_200_000
"""2024-01-01T00:00:00Z: the zero of the timestamp bits."""

MACHINE_BITS = 10
SEQUENCE_BITS = 12
MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1
TIMESTAMP_SHIFT = MACHINE_BITS + SEQUENCE_BITS
MAX_TIMESTAMP = (1 << 41) - 1

RESERVE_MS = 1_000
"""How far the mark in the slot file is ahead: one small write per second while ids are issued."""

LAST_MARK_MS = EPOCH_MS + MAX_TIMESTAMP - 366 * 86_400_000
"""A later mark leaves no ids to issue: another program wrote it."""

SLOTS = Path("/tmp/aaiclick-machine-ids")  # noqa: S108  (shared by all users on purpose; see `_open_slot`)


def extract_timestamp(snowflake_id: int) -> int:
    """Return the Unix milliseconds at which the id was created."""
    return (snowflake_id >> TIMESTAMP_SHIFT) + EPOCH_MS


def extract_machine_id(snowflake_id: int) -> int:
    return (snowflake_id >> SEQUENCE_BITS) & ((1 << MACHINE_BITS) - 1)


def extract_sequence(snowflake_id: int) -> int:
    return snowflake_id & MAX_SEQUENCE


class MachineLease:
    """Exclusive use of one machine id until the process ends or `release` is called."""

    def __init__(self, machine_id: int, handle: int, mark_ms: int, path: Path) -> None:
        self.machine_id = machine_id
        self.mark_ms = mark_ms
        self._handle = handle
        self._path = path

    def holds(self) -> bool:
        """Whether the locked file is still in place: a removed slot can be leased again by another process."""
        try:
            return os.path.samestat(os.fstat(self._handle), self._path.lstat())
        except OSError:
            return False

    def reserve(self, until_ms: int) -> None:
        """Store a mark, so that no later holder issues ids before `until_ms`."""
        try:
            os.pwrite(self._handle, f"{until_ms:020d}".encode(), 0)
        except OSError as error:
            raise SettingsError(
                f"The machine id cannot be stored in {self._path}: {error.strerror}.", remedy="Free some space in /tmp."
            ) from None
        self.mark_ms = until_ms

    def release(self) -> None:
        os.close(self._handle)


def lease_machine_id(first: int, last: int, now_ms: int, slots: Path = SLOTS) -> MachineLease:
    """Lease a free machine id in [first, last], preferably one with a mark in the past."""
    _create_slot_directory(slots)
    ids = list(range(first, last + 1))
    random.shuffle(ids)  # so that processes that start together try different slots
    ahead: list[MachineLease] = []
    chosen: MachineLease | None = None
    for machine_id in ids:
        lease = _try_lease_slot(machine_id, slots)
        if lease is None:
            continue
        if lease.mark_ms < now_ms:
            chosen = lease
            break
        if lease.mark_ms > LAST_MARK_MS:
            lease.release()
            continue
        ahead.append(lease)
    if chosen is None and ahead:
        chosen = min(ahead, key=lambda lease: lease.mark_ms)
        ahead.remove(chosen)
    for lease in ahead:
        lease.release()
    if chosen is None:
        raise SettingsError(
            f"All {len(ids)} snowflake machine ids from {first} to {last} are in use on this machine, or unusable.",
            remedy=f"Widen AAICLICK_MACHINE_IDS, run fewer processes, or check {slots}.",
        )
    return chosen


def _create_slot_directory(slots: Path) -> None:
    try:
        slots.mkdir()
        slots.chmod(0o1777)
    except FileExistsError:
        status = slots.lstat()
        shared = bool(status.st_mode & stat.S_ISVTX) or status.st_uid in (0, os.geteuid())
        if not (stat.S_ISDIR(status.st_mode) and shared):
            raise SettingsError(
                f"{slots}, where machine ids are leased, is not a directory, or any user can remove its files.",
                remedy=f"Remove {slots}; it will be created again.",
            ) from None


def _try_lease_slot(machine_id: int, slots: Path) -> MachineLease | None:
    handle = _open_slot(slots / f"{machine_id:04d}")
    if handle is None:
        return None
    path = slots / f"{machine_id:04d}"
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        text = os.pread(handle, 20, 0)
        lease = MachineLease(machine_id, handle, int(text) if text.isdigit() else 0, path)
    except OSError:
        os.close(handle)
        return None
    if not (stat.S_ISREG(os.fstat(handle).st_mode) and lease.holds()):
        lease.release()
        return None
    return lease


def _open_slot(path: Path) -> int | None:
    """Open another user's file without O_CREAT: Linux refuses that in a sticky directory (fs.protected_regular)."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    except OSError:
        return None
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(handle, 0o666)
    except FileExistsError:
        return _open_slot(path)
    except OSError:
        return None
    return handle


class SnowflakeGenerator:
    """Generates the ids of one process. Thread-safe."""

    def __init__(
        self, lease: Callable[[int], MachineLease] | None = None, clock_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._take_lease = lease or _lease_by_settings
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._lease: MachineLease | None = None
        self._base = 0
        self._last_ms = 0
        self._sequence = 0

    def next_id(self) -> int:
        """Return a new id."""
        with self._lock:
            now = self._clock_ns() // 1_000_000
            if now > self._last_ms:
                self._advance(now)
            elif self._sequence > MAX_SEQUENCE:
                self._advance(self._last_ms + 1)
            sequence = self._sequence
            self._sequence = sequence + 1
            return self._base | sequence

    def next_ids(self, count: int) -> list[int]:
        """Return `count` new ids, ascending; faster than many calls of `next_id`."""
        ids: list[int] = []
        with self._lock:
            while count > 0:
                now = self._clock_ns() // 1_000_000
                if now > self._last_ms:
                    self._advance(now)
                elif self._sequence > MAX_SEQUENCE:
                    self._advance(self._last_ms + 1)
                size = min(count, MAX_SEQUENCE + 1 - self._sequence)
                first = self._base | self._sequence
                ids.extend(range(first, first + size))
                self._sequence += size
                count -= size
        return ids

    def _advance(self, ms: int) -> None:
        """Move to millisecond `ms`, which is ahead of the clock if the sequence is exhausted. The lock is held."""
        if self._lease is not None and ms >= self._lease.mark_ms and not self._lease.holds():
            self._lease.release()
            self._lease = None
        if self._lease is None:
            self._lease = self._take_lease(ms)
            ms = max(ms, self._lease.mark_ms + 1)
        timestamp = ms - EPOCH_MS
        if not 0 <= timestamp <= MAX_TIMESTAMP:
            raise SettingsError(
                f"The clock says {ms} ms since 1970, outside the range of snowflake ids (2024 to 2093).",
                remedy="Set the clock.",
            )
        if ms >= self._lease.mark_ms:
            self._lease.reserve(ms + RESERVE_MS)
        self._last_ms = ms
        self._sequence = 0
        self._base = (timestamp << TIMESTAMP_SHIFT) | (self._lease.machine_id << SEQUENCE_BITS)

    def after_fork(self) -> None:
        """Drop the parent's lease: the child shares its file, and must not use its id."""
        self._lock = threading.Lock()
        if self._lease is not None:
            self._lease.release()
        self._lease = None
        self._last_ms = 0


def _lease_by_settings(now_ms: int) -> MachineLease:
    first, last = get_settings().machine_ids
    return lease_machine_id(first, last, now_ms)


_generator = SnowflakeGenerator()
os.register_at_fork(after_in_child=_generator.after_fork)

get_snowflake_id = _generator.next_id
get_snowflake_ids = _generator.next_ids
