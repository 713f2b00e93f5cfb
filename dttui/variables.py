"""The environment variables that count: those that a call brings along, else those of this process.

Secrets are among them. A process that serves several people has each call looked after with the caller's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_brought: ContextVar[dict[str, str] | None] = ContextVar("variables", default=None)
_OF_THIS_MACHINE = (
    *("HOME", "PATH", "LOGNAME", "USER", "SHELL", "TMPDIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
    *("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DTTUI_DEMO_ROOT", "DTTUI_SSH_CONFIG", "PYTHONPATH"),
)
"""What a process of ours cannot do without, and is no secret of anybody's."""


def variables() -> Mapping[str, str]:
    """Return those of the call that is being answered."""
    brought = _brought.get()
    return os.environ if brought is None else brought


def are_brought() -> bool:
    """Whether they came with the call."""
    return _brought.get() is not None


@contextmanager
def bringing(brought: Mapping[str, str] | None) -> Iterator[None]:
    """Have others count inside; `None` changes nothing. Other tasks and threads keep their own."""
    if brought is None:
        yield
        return
    before = _brought.set(dict(brought))
    try:
        yield
    finally:
        _brought.reset(before)


def learn(name: str, value: str) -> None:
    """Have a variable count from now on, for all that is done for the call; in this process, where there is no call."""
    brought = _brought.get()
    (os.environ if brought is None else brought)[name] = value


def for_a_process() -> dict[str, str]:
    """Return those of a process that is started for the call."""
    brought = _brought.get()
    if brought is None:
        return dict(os.environ)
    return {name: os.environ[name] for name in _OF_THIS_MACHINE if name in os.environ} | dict(brought)
