"""PostgreSQL refuses to run as root; when we are root, it runs as an ordinary user all the same.

Two ways, tried in this order:

1. *A user namespace.* Inside it the process is `nobody`, outside it stays root: the files keep their owner, a private
   directory on the way to them (`/root`) is no obstacle, and no account is made. One `unshare` call, no helper
   program.
2. *A change of user* to an existing system account, for containers where namespaces are forbidden. The cluster's
   files are given to that account, and it keeps the one capability (CAP_DAC_OVERRIDE) that lets it pass private
   directories.

An ordinary user needs neither.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aaiclick.errors import StackError

ACCOUNTS = ("postgres", "nobody")
CLONE_NEWUSER = 0x10000000
PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True)
class Disguise:
    """How PostgreSQL is started: `enter` runs in the child before exec; its files belong to `uid` and `gid`."""

    name: str
    enter: Callable[[], None]
    uid: int
    gid: int

    def own(self, cluster: Path) -> None:
        """Give the cluster to the account that PostgreSQL will run as, should another way have been taken last time."""
        if cluster.stat().st_uid == self.uid:
            return
        for entry in [*cluster.rglob("*"), cluster]:  # the directory itself last: it marks the work as done
            os.chown(entry, self.uid, self.gid, follow_symlinks=False)


def choose_disguise(*, die_with_parent: bool = True) -> Disguise:
    """The way that works here; raises StackError when we are root and neither does."""
    last = _die_with_parent if die_with_parent else _live_on
    if os.geteuid() != 0:
        return Disguise("as this user", last, os.geteuid(), os.getegid())
    account = _account()
    if sys.platform == "linux" and _works(lambda: _enter_namespace(account)):
        return Disguise("in a user namespace", lambda: _enter_namespace(account, last), os.geteuid(), os.getegid())
    if sys.platform == "linux" and _works(lambda: _become(account)):
        return Disguise(f"as {account.pw_name}", lambda: _become(account, last), account.pw_uid, account.pw_gid)
    raise StackError(
        "PostgreSQL does not run as root, and this system lets root neither make a user namespace nor change user.",
        remedy="Run aaiclick as an ordinary user, or set AAICLICK_DATABASE_URL to a PostgreSQL server.",
    )


def _account() -> pwd.struct_passwd:
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StackError(
        f"PostgreSQL does not run as root, and there is no account to run it as ({' or '.join(ACCOUNTS)}).",
        remedy="Create one of them, run aaiclick as an ordinary user, or set AAICLICK_DATABASE_URL.",
    )


def _works(enter: Callable[[], None]) -> bool:
    """Try it in a throw-away child."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            enter()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _die_with_parent() -> None:
    """Linux only: a fast shutdown when the keeper goes. Elsewhere the next keeper stops what it finds running."""
    if sys.platform == "linux":
        _call("prctl", PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)


def _live_on() -> None:
    """Outlive the parent, as a server that pg_ctl starts must."""


def _enter_namespace(account: pwd.struct_passwd, last: Callable[[], None] = _die_with_parent) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{account.pw_uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{account.pw_gid} {gid} 1")
    last()


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilitySets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _become(account: pwd.struct_passwd, last: Callable[[], None] = _die_with_parent) -> None:
    _call("prctl", PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
    header = _CapabilityHeader(CAPABILITY_VERSION_3, 0)
    bit = 1 << CAP_DAC_OVERRIDE
    sets = (_CapabilitySets * 2)(_CapabilitySets(bit, bit, bit), _CapabilitySets(0, 0, 0))
    _call("capset", ctypes.byref(header), ctypes.byref(sets))
    _call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0)
    last()


def _call(name: str, *arguments: object) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
