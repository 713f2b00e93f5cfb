"""The states of an environment, and their names in the person's language."""

from __future__ import annotations

from enum import Enum

from dttui.i18n import _


class EnvironmentState(str, Enum):
    """How an environment is.

    CONNECTING → IDLE ⇄ BUSY ⇄ UNHEALTHY
         └────► UNREACHABLE | NO_AGENT | REFUSED → CONNECTING after a while
    """

    CONNECTING = "connecting"
    IDLE = "idle"
    BUSY = "busy"
    """A job of dttui runs there, somebody has set GPUs aside, or another process holds GPU memory."""
    UNHEALTHY = "unhealthy"
    """A GPU reports an error."""
    UNREACHABLE = "unreachable"
    NO_AGENT = "no agent"
    """The host is reached; dtagent is missing there, or does not answer."""
    REFUSED = "refused"
    """Its key or our credentials were not accepted."""


def environment_state_name(state: EnvironmentState) -> str:
    """Return the name of the state of an environment."""
    return {
        EnvironmentState.CONNECTING: _("connecting"),
        EnvironmentState.IDLE: _("idle"),
        EnvironmentState.BUSY: _("busy"),
        EnvironmentState.UNHEALTHY: _("unhealthy"),
        EnvironmentState.UNREACHABLE: _("unreachable"),
        EnvironmentState.NO_AGENT: _("no agent"),
        EnvironmentState.REFUSED: _("refused"),
    }[state]
