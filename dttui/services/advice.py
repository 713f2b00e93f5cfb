"""What to try after a failure: from its exit code, signal and words to a few plain sentences. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable

from dtagent.protocol.events import JobState

from dttui.errors import ExitCode
from dttui.i18n import _
from dttui.services.view import Failure, JobView

_BY_WORDS: tuple[tuple[str, Callable[[], str]], ...] = (
    (
        r"CUDA out of memory|OutOfMemoryError",
        lambda: _(
            "The GPU's memory was full: use a smaller batch a GPU, more GPUs, or a framework that shards the model."
        ),
    ),
    (
        r"ModuleNotFoundError|ImportError|No module named",
        lambda: _("A Python package is missing on that host: install it there, or set `python` of the environment."),
    ),
    (
        r"FileNotFoundError|No such file or directory",
        lambda: _("A file is missing on that host: a relative workdir is sent with the job, absolute paths are not."),
    ),
    (
        r"Address already in use|EADDRINUSE",
        lambda: _("A port was taken by another process: launch again, another port will be chosen."),
    ),
    (
        r"Connection (?:refused|reset|timed out)|No route to host|RendezvousTimeout|Timed out|timeout after",
        lambda: _(
            "The nodes did not reach each other: check `address` in the inventory, and any firewall between them."
        ),
    ),
    (
        r"NCCL",
        lambda: _("NCCL failed: set NCCL_DEBUG=INFO under run.env and launch again to see on which link."),
    ),
    (
        r"No space left on device",
        lambda: _("The disk of that host is full: make room, or write checkpoints elsewhere."),
    ),
    (r"Permission denied", lambda: _("The user on that host may not read or write a file that the script needs.")),
)


def advice(view: JobView) -> tuple[str, ...]:
    """Return what a person might do about a job that failed, the likeliest first; nothing for any other job."""
    if view.state is not JobState.FAILED:
        return ()
    if view.failures:
        return _about(view.failures[0])
    if view.exit_code == ExitCode.UNREACHABLE:
        return (_("See whether you can log in to that host with ssh, and what `dttui envs` says of it."),)
    if view.exit_code == ExitCode.PREFLIGHT:
        return (_("Put right what the findings name, and launch again. Nothing was started."),)
    if view.exit_code == ExitCode.LAUNCH:
        return (_("Nothing is left running. Put right what is named above, and launch again."),)
    return (_("Look at the events for what happened before."),)


def _about(failure: Failure) -> tuple[str, ...]:
    words = "\n".join((failure.error or "", failure.traceback or "", *failure.tail))
    found = [sentence() for pattern, sentence in _BY_WORDS if re.search(pattern, words)]
    if failure.signal == signal.SIGKILL:
        found.append(_("It was killed from outside, most often for want of host memory: see `dmesg` on that host."))
    elif failure.signal in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
        found.append(_("It crashed in compiled code: run it with PYTHONFAULTHANDLER=1 under run.env to see where."))
    if not found and failure.traceback:
        found.append(_("The traceback ends where the script went wrong."))
    if not found:
        found.append(_("Read the last lines of its standard error, and the logs of the other ranks."))
    return tuple(found)
