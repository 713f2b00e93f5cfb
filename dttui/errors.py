"""Every error dttui raises on purpose. Each has a message (what), a hint (what to do) and the exit code of its kind.

DttuiError                 1   an internal error
├── UsageError             2   a wrong command line or choice
│   └── DocumentError      2   a job.yaml or inventory that cannot be used, with all its problems
├── PreflightError         3   a plan or preflight with errors
├── HostError              4   a host that cannot be reached or used; carries `host`
│   ├── HostUnreachableError
│   │   └── BrokenProtocolError    its agent says what none may
│   ├── HostKeyError           unknown or changed; carries the fingerprint
│   ├── AuthenticationError
│   ├── OutOfTimeError   101   what was to be done there was broken off: the time for all of it was up
│   ├── AgentError             no agent there, or one that does not answer as it should
│   │   └── AgentGoneError     the host answers, and its agent is not there, or does not start
│   └── RefusedError       2   could be done there, and was not, since nobody insisted; the host is as it was
├── LaunchError            5   a launch that failed and was rolled back
├── JobFailedError       100
├── NotFinishedError     101
├── NoSuchJobError       102
└── CancelledError       103
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import TypeVar

Raised = TypeVar("Raised", bound=BaseException)


class ExitCode(IntEnum):
    """What a dttui command returns to its caller."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    PREFLIGHT = 3
    UNREACHABLE = 4
    LAUNCH = 5
    WARNINGS = 6
    """Of `doctor`, where nothing is worse."""
    JOB_FAILED = 100
    NOT_FINISHED = 101
    NO_SUCH_JOB = 102
    CANCELLED = 103


class DttuiError(Exception):
    """Base of all; `str()` of it is the message alone."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(DttuiError):
    """The command line, or a choice on screen, cannot be carried out."""

    exit_code = ExitCode.USAGE


class PreflightError(DttuiError):
    """A check before the launch found something that would make it fail."""

    exit_code = ExitCode.PREFLIGHT


class HostError(DttuiError):
    """Something about one host."""

    exit_code = ExitCode.UNREACHABLE

    def __init__(self, host: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.host = host


class HostUnreachableError(HostError):
    """No connection, or one that broke or fell silent."""


class BrokenProtocolError(HostUnreachableError):
    """The link was ended, since what came over it is nothing that an agent may say."""


class HostKeyError(HostError):
    """The host's key is unknown, or not the one known."""

    def __init__(self, host: str, message: str, hint: str = "", *, fingerprint: str = "") -> None:
        super().__init__(host, message, hint)
        self.fingerprint = fingerprint
        """`SHA256:…` of the key the host showed."""


class AuthenticationError(HostError):
    """The host did not accept who we are, or asked for something nobody was there to answer."""


REFUSALS = (HostKeyError, AuthenticationError)
"""A host that is reached, and whose key or to whom our credentials were not acceptable: its state is `refused`."""


class AgentError(HostError):
    """The agent is missing, of another version, or answered with an error."""

    def __init__(self, host: str, message: str, hint: str = "", *, code: int | None = None) -> None:
        super().__init__(host, message, hint)
        self.code = code
        """The JSON-RPC error code where the agent gave one."""


class AgentGoneError(AgentError):
    """The host lets us in, and the agent that should be there is not, or cannot be started."""


class OutOfTimeError(HostError):
    """It was broken off on this host, since the time for the command as a whole was up; doing it again takes it up."""

    exit_code = ExitCode.NOT_FINISHED


class RefusedError(HostError):
    """It could be done on this host and would do harm: the person has to insist."""

    exit_code = ExitCode.USAGE


class LaunchError(DttuiError):
    """The gang could not be started; every node was rolled back."""

    exit_code = ExitCode.LAUNCH


class JobFailedError(DttuiError):
    """The job ran and failed."""

    exit_code = ExitCode.JOB_FAILED

    def __init__(self, message: str, hint: str = "", *, first_failure: dict[str, object] | None = None) -> None:
        super().__init__(message, hint)
        self.first_failure = first_failure
        """`node`, `rank`, `cause` and `time` of what failed first, where something did."""


class NotFinishedError(DttuiError):
    """The job is still running."""

    exit_code = ExitCode.NOT_FINISHED


class NoSuchJobError(DttuiError):
    """No job of that id on this login node."""

    exit_code = ExitCode.NO_SUCH_JOB


class CancelledError(DttuiError):
    """The job was stopped on request."""

    exit_code = ExitCode.CANCELLED


def is_short_of_threads(error: BaseException) -> bool:
    """Whether the system starts no more threads or processes for this user, as `ulimit -u` limits them."""
    if isinstance(error, RuntimeError):
        return "start new thread" in str(error)
    return isinstance(error, BlockingIOError) and error.errno == errno.EAGAIN


def without_frames(error: Raised) -> Raised:
    """Return an error that is kept, without where it was raised and what it came of: those hold all that was there."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error
