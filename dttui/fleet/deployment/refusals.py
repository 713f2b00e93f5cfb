"""What to tell a person when a program that was pushed to a host refused: a message and a hint for each code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dttui.errors import AgentError, HostError, RefusedError
from dttui.i18n import _
from dttui.sanitize import clean

_MAX_OUTPUT_LINES = 3


def refused(host: str, refusal: dict[str, Any]) -> HostError:
    """Return the error for a refusal, `{"refusal": code, …}`, of the program on a host."""
    details = {name: _tail(value) if name == "output" else clean(str(value)) for name, value in refusal.items()}
    describe = _DESCRIPTIONS.get(details["refusal"], _unknown)
    try:
        message, hint = describe()
        message, hint = message.format(**details), hint.format(**details)
    except KeyError:
        message, hint = _unknown()[0].format(refusal=details["refusal"]), ""
    kind = RefusedError if details["refusal"] == "jobs-running" else AgentError
    return kind(host, f"{host}: {message}", hint)


def _tail(output: object) -> str:
    lines = [line for line in clean(str(output)).splitlines() if line.strip()]
    return " ".join(line.strip() for line in lines[-_MAX_OUTPUT_LINES:])


def _unknown() -> tuple[str, str]:
    return _("the host refused: {refusal}"), ""


def elsewhere(first: str = "") -> str:
    """Say what helps wherever the agent's directory cannot be, after what may help there: it can be another."""
    other = _("Name a directory of yours on a local disk of the host in the inventory: agent_root: /path/to/directory")
    return f"{first} {other}".lstrip()


_DESCRIPTIONS: dict[str, Callable[[], tuple[str, str]]] = {
    "root-not-directory": lambda: (
        _("{path} is a link or a file, where the agent's directory should be"),
        elsewhere(_("Look who made it, and remove it.")),
    ),
    "root-not-ours": lambda: (
        _("{path} belongs to another user (uid {uid})"),
        elsewhere(),
    ),
    "root-exchangeable": lambda: (
        _("others could exchange {path}, since they can write to a directory above it, or own one"),
        elsewhere(),
    ),
    "root-foreign": lambda: (
        _("{path} holds other things than the agent's, which needs a directory to itself"),
        elsewhere(),
    ),
    "root-read-only": lambda: (
        _("{path} is on a file system that is mounted read-only"),
        elsewhere(),
    ),
    "root-unrecorded": lambda: (
        _("{path} is not to be used, and another place cannot be recorded in {place}: {reason}"),
        elsewhere(),
    ),
    "root-open": lambda: (
        _("others can write to {path}"),
        elsewhere(_("Look what is in it; then remove it, or: chmod 700 {path}")),
    ),
    "network-file-system": lambda: (
        _("{path} is on a network file system ({kind}); the agent needs a local disk"),
        elsewhere(),
    ),
    "busy": lambda: (
        _("another deployment is at work in {path}"),
        _("Try again when it has ended."),
    ),
    "disk-full": lambda: (
        _("the disk or your quota was full before all was installed; what was begun has been removed ({path})"),
        elsewhere(_("Make room there and deploy again.")),
    ),
    "jobs-running": lambda: (
        _("jobs run there: {jobs}"),
        _("Stop them first, or let --force stop them."),
    ),
    "daemon-stays": lambda: (
        _("the agent's daemon in {path} does not end"),
        _("Look what it waits for on the host: a disk or a driver that hangs."),
    ),
    "corrupt": lambda: (
        _("{name} did not arrive as it was sent ({received} of {size} bytes); nothing was installed"),
        _("Deploy again; if it stays so, something on the way changes the data."),
    ),
    "venv-failed": lambda: (
        _("its Python could not make a virtual environment: {output}"),
        _("Name another Python in the inventory: python: /path/to/python3"),
    ),
    "pip-failed": lambda: (
        _("pip could not install the agent: {output}"),
        _("Name another Python in the inventory: python: /path/to/python3"),
    ),
    "check-failed": lambda: (
        _("the agent was installed, but does not run: {output}"),
        _("The version used until now stays. Name another Python in the inventory: python: /path/to/python3"),
    ),
    "tool-failed": lambda: (
        _("{name} does not run there: {output}"),
        _("Leave --with {name} out: where ranks stand is then read by Python and torch alone."),
    ),
    "system": lambda: (
        _("{path}: {reason}"),
        _("Look at that path on the host."),
    ),
}
