"""Every error a user of aaiclick can meet, in one tree.

    AaiclickError
    ├── SettingsError          a setting is missing, malformed or contradicts another
    ├── HomeError              AAICLICK_HOME cannot be used
    ├── StackError             a server of the embedded stack did not start or did not stop
    ├── UnreachableError       a database or the service does not answer
    │   └── UnansweredError    it was asked, and nothing came back in time
    ├── UnauthorisedError      a database or the service refused the credential
    ├── ForbiddenError         the credential is good, but does not allow this
    ├── UnsupportedServerError a database is too old, or is not what it should be
    ├── SchemaError            the PostgreSQL schema is not the one this version works with
    ├── EntrypointError        a task names code that is not there or may not be run
    ├── NotFoundError          there is no job, task, group or worker of this id
    ├── SubmitError            what was submitted cannot be run as it is
    │   ├── CycleError         tasks or groups wait for each other
    │   ├── UnknownTableError  an Object that is passed on is released, unknown, or another organisation's
    │   └── LimitError         the job has grown past what a job may be
    ├── ConflictError          something that is there already is in the way
    ├── ScheduleError          a cron expression or a time zone cannot be used
    ├── RequestError           a request is not as it should be, or more than the service takes
    ├── SecretError            a secret is not granted, is bound to another host, or cannot be decrypted here
    └── LeaseLost              somebody else has the task now: nothing was changed

Each says what happened to which thing, and what to do next: `str(error)` is what the CLI prints.
"""

from __future__ import annotations

from typing import ClassVar, Self

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_UNAUTHORISED = 4
EXIT_UNREACHABLE = 5


class AaiclickError(Exception):
    """Base of all errors raised on purpose; carries what happened and the remedy."""

    exit_code: ClassVar[int] = EXIT_FAILED

    endpoint: str = ""
    """host:port (or URL) of the server at fault: it is unreachable, overloaded, or refuses this installation.
    Empty if the request is at fault. A worker does not charge an attempt for a fault of its own servers.
    """

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def at(self, endpoint: str) -> Self:
        """This error, with the server that is at fault."""
        self.endpoint = endpoint
        return self

    def __str__(self) -> str:
        return f"{self.what}\n{self.remedy}" if self.remedy else self.what

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.remedy, self.endpoint)


def headline(text: str) -> str:
    """The line of an error's text that names the error: the one after the last frame of a traceback, else the first.

    Lines after it are details and the remedy.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    last = max((n for n, line in enumerate(lines) if line.startswith("  File ")), default=-1)
    named = (line for line in lines[last + 1 :] if not line.startswith((" ", "\t")))
    return next(named, lines[0].strip() if lines else "")


def _rebuild(kind: type[AaiclickError], what: str, remedy: str, endpoint: str) -> AaiclickError:
    return kind(what, remedy=remedy).at(endpoint)


class SettingsError(AaiclickError):
    """A setting is missing, malformed or contradicts another."""

    exit_code = EXIT_USAGE


class HomeError(AaiclickError):
    """AAICLICK_HOME cannot be used."""

    exit_code = EXIT_USAGE


class StackError(AaiclickError):
    """A server of the embedded stack did not start or did not stop."""

    exit_code = EXIT_UNREACHABLE


class UnreachableError(AaiclickError):
    """A database does not answer."""

    exit_code = EXIT_UNREACHABLE


class UnansweredError(UnreachableError):
    """The service was asked, and nothing came back in time."""


class UnauthorisedError(AaiclickError):
    """A database or the service refused the credential."""

    exit_code = EXIT_UNAUTHORISED


class ForbiddenError(AaiclickError):
    """The credential is good, but does not allow this."""

    exit_code = EXIT_UNAUTHORISED


class UnsupportedServerError(AaiclickError):
    """A database is too old, or is not what it should be."""

    exit_code = EXIT_UNREACHABLE


class SchemaError(AaiclickError):
    """The PostgreSQL schema is not the one this version works with."""


class EntrypointError(AaiclickError):
    """A task names code that is not there or may not be run."""

    exit_code = EXIT_USAGE


class NotFoundError(AaiclickError):
    """There is no job, task, group or worker of this id."""

    exit_code = EXIT_NOT_FOUND


class SubmitError(AaiclickError):
    """What was submitted cannot be run as it is; nothing was inserted."""

    exit_code = EXIT_USAGE


class CycleError(SubmitError):
    """Tasks or groups wait for each other."""


class UnknownTableError(SubmitError):
    """An Object that is passed on is released, unknown, or another organisation's."""

    exit_code = EXIT_NOT_FOUND


class LimitError(SubmitError):
    """The job has grown past what a job may be."""


class ConflictError(AaiclickError):
    """Something that is there already is in the way."""


class ScheduleError(AaiclickError):
    """A cron expression or a time zone cannot be used."""

    exit_code = EXIT_USAGE


class RequestError(AaiclickError):
    """A request is not as it should be, or more than the service takes."""

    exit_code = EXIT_USAGE


class SecretError(AaiclickError):
    """A secret is not granted, is bound to another host, or cannot be decrypted here."""


class LeaseLost(AaiclickError):  # noqa: N818  (the word of the requirements)
    """Somebody else has the task now: nothing was changed."""
