"""The errors of aaiclick, in one tree.

    AaiclickError
    ├── SettingsError          a setting is missing, malformed or contradicts another
    ├── HomeError              AAICLICK_HOME cannot be used
    ├── StackError             a server of the embedded stack did not start or did not stop
    ├── UnreachableError       a database or the service does not answer
    │   └── UnansweredError    the request was sent, but no response arrived in time
    ├── UnauthorisedError      a database or the service refused the credential
    ├── ForbiddenError         the credential is valid, but lacks the permission
    ├── UnsupportedServerError a database is too old, or is not PostgreSQL or ClickHouse
    ├── SchemaError            the PostgreSQL schema does not match this version
    ├── EntrypointError        a task names code that does not exist or may not be run
    ├── UserCodeError          code of the user raised an exception; the message has its file, line and text
    ├── JobFailedError         the result of a job is read that has failed or was cancelled
    ├── NotFoundError          there is no job, task, group or worker with this id
    ├── SubmitError            the submitted job is invalid; nothing was inserted
    │   ├── PlaceholderError   code of a job needs the value of a task that has not run
    │   │   └── PlaceholderAttributeError   the same for an attribute of the value
    │   ├── CycleError         tasks or groups depend on each other in a cycle
    │   ├── UnknownTableError  an Object argument is released, unknown, or another organisation's
    │   └── LimitError         the job exceeds the limit of tasks or depth
    ├── ConflictError          the operation conflicts with the current state
    ├── ScheduleError          a cron expression or a time zone is invalid
    ├── DeliveryError          a channel did not accept a message
    ├── RequestError           a request is invalid or too large
    ├── SecretError            a secret is not granted, is bound to another host, or cannot be decrypted here
    └── LeaseLost              another worker holds the task's lease; nothing was changed

Each message says what happened to which thing, and the remedy: `str(error)` is what the CLI prints.
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

    address: str = ""
    """host:port (or URL) of the server at fault: it is unreachable, overloaded, or refuses this installation.
    Empty if the request is at fault. A worker does not charge an attempt for a fault of its own servers.
    """

    def __init__(self, what: str, *, remedy: str = "") -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def at(self, address: str) -> Self:
        """Set the address of the server at fault and return this error."""
        self.address = address
        return self

    def __str__(self) -> str:
        return f"{self.what}\n{self.remedy}" if self.remedy else self.what

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.remedy, self.address)


def headline(text: str) -> str:
    """Return the line that names the error: the one after the last frame of a traceback, else the first.

    The lines after it are details and the remedy.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    last = max((n for n, line in enumerate(lines) if line.startswith("  File ")), default=-1)
    named = (line for line in lines[last + 1 :] if not line.startswith((" ", "\t")))
    return next(named, lines[0].strip() if lines else "")


def _rebuild(error_class: type[AaiclickError], what: str, remedy: str, address: str) -> AaiclickError:
    return error_class(what, remedy=remedy).at(address)


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
    """The request was sent, but no response arrived in time."""


class UnauthorisedError(AaiclickError):
    """A database or the service refused the credential."""

    exit_code = EXIT_UNAUTHORISED


class ForbiddenError(AaiclickError):
    """The credential is valid, but lacks the permission."""

    exit_code = EXIT_UNAUTHORISED


class UnsupportedServerError(AaiclickError):
    """A database is too old, or is not PostgreSQL or ClickHouse."""

    exit_code = EXIT_UNREACHABLE


class SchemaError(AaiclickError):
    """The PostgreSQL schema does not match this version."""


class EntrypointError(AaiclickError):
    """A task names code that does not exist or may not be run."""

    exit_code = EXIT_USAGE


class UserCodeError(AaiclickError):
    """Code of the user raised an exception; the message has its file, line and text."""


class JobFailedError(AaiclickError):
    """The result of a job is read that has failed or was cancelled."""


class NotFoundError(AaiclickError):
    """There is no job, task, group or worker with this id."""

    exit_code = EXIT_NOT_FOUND


class SubmitError(AaiclickError):
    """The submitted job is invalid; nothing was inserted."""

    exit_code = EXIT_USAGE


class PlaceholderError(SubmitError, TypeError):
    """Code of a job needs the value of a task that has not run."""

    permanent = True


class PlaceholderAttributeError(PlaceholderError, AttributeError):
    """Code of a job needs an attribute of the value of a task that has not run."""


class CycleError(SubmitError):
    """Tasks or groups depend on each other in a cycle."""


class UnknownTableError(SubmitError):
    """An Object argument is released, unknown, or another organisation's."""

    exit_code = EXIT_NOT_FOUND


class LimitError(SubmitError):
    """The job exceeds the limit of tasks or depth."""


class ConflictError(AaiclickError):
    """The operation conflicts with the current state."""


class ScheduleError(AaiclickError):
    """A cron expression or a time zone is invalid."""

    exit_code = EXIT_USAGE


class RequestError(AaiclickError):
    """A request is invalid or too large."""

    exit_code = EXIT_USAGE


class SecretError(AaiclickError):
    """A secret is not granted, is bound to another host, or cannot be decrypted here."""


class DeliveryError(AaiclickError):
    """A channel did not accept a message."""


class LeaseLost(AaiclickError):  # noqa: N818  (the name in the requirements)
    """Another worker holds the task's lease; nothing was changed."""
