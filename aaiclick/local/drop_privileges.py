"""Drop root privileges before PostgreSQL starts, since it refuses to run as root.

Two ways, tried in this order:

1. *A user namespace.* Inside it the process has an unprivileged uid, outside it stays root: the files keep their
   owner, private parent directories (`/root`) can be passed, and no account is created.
2. *A change of user* to an existing system account, for containers where namespaces are forbidden. The account becomes
   the owner of the cluster's files, and keeps the one capability (CAP_DAC_OVERRIDE) that passes private directories.

A process that is not root needs neither.
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
class UnprivilegedUser:
    """The user that PostgreSQL runs as: `drop_privileges` runs in the child before exec; `uid`, `gid` own its files."""

    name: str
    drop_privileges: Callable[[], None]
    uid: int
    gid: int

    def take_ownership(self, cluster: Path) -> None:
        """Change the owner of the cluster's files, if another way was chosen last time."""
        if cluster.stat().st_uid == self.uid:
            return
        for entry in [*cluster.rglob("*"), cluster]:  # the directory itself last: it marks the change as complete
            os.chown(entry, self.uid, self.gid, follow_symlinks=False)


def choose_unprivileged_user(*, die_with_parent: bool = True) -> UnprivilegedUser:
    """Return the first way that works here; raises StackError if the process is root and neither works."""
    before_exec = _die_with_parent if die_with_parent else _outlive_parent
    if os.geteuid() != 0:
        return UnprivilegedUser("as this user", before_exec, os.geteuid(), os.getegid())
    account = _find_account()
    if sys.platform == "linux" and _works_in_child(lambda: _enter_namespace(account)):
        return UnprivilegedUser(
            "in a user namespace", lambda: _enter_namespace(account, before_exec), os.geteuid(), os.getegid()
        )
    if sys.platform == "linux" and _works_in_child(lambda: _switch_user(account)):
        return UnprivilegedUser(
            f"as {account.pw_name}", lambda: _switch_user(account, before_exec), account.pw_uid, account.pw_gid
        )
    raise StackError(
        "PostgreSQL does not run as root, and on this system root can neither create a user namespace nor change user.",
        remedy="Run aaiclick as an ordinary user, or set AAICLICK_DATABASE_URL to a PostgreSQL server.",
    )


def _find_account() -> pwd.struct_passwd:
    for name in ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise StackError(
        f"PostgreSQL does not run as root, and there is no account to run it as ({' or '.join(ACCOUNTS)}).",
        remedy="Create one of them, run aaiclick as an ordinary user, or set AAICLICK_DATABASE_URL.",
    )


def _works_in_child(enter: Callable[[], None]) -> bool:
    """Whether the call succeeds in a forked child."""
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
    """Fast shutdown when the keeper ends. Linux only: elsewhere the next keeper stops a server that still runs."""
    if sys.platform == "linux":
        _call_libc("prctl", PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)


def _outlive_parent() -> None:
    """Do nothing: a server started by pg_ctl must outlive its parent."""


def _enter_namespace(account: pwd.struct_passwd, before_exec: Callable[[], None] = _die_with_parent) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _call_libc("unshare", CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{account.pw_uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{account.pw_gid} {gid} 1")
    before_exec()


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapabilitySets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _switch_user(account: pwd.struct_passwd, before_exec: Callable[[], None] = _die_with_parent) -> None:
    _call_libc("prctl", PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
    header = _CapabilityHeader(CAPABILITY_VERSION_3, 0)
    bit = 1 << CAP_DAC_OVERRIDE
    sets = (_CapabilitySets * 2)(_CapabilitySets(bit, bit, bit), _CapabilitySets(0, 0, 0))
    _call_libc("capset", ctypes.byref(header), ctypes.byref(sets))
    _call_libc("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0)
    before_exec()


def _call_libc(name: str, *arguments: object) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
