"""The tools that a deployment may bring beside the agent: their pins, and what is to become of each on a host.

They lie in the agent's root and not with one version of it, so that they stay whatever version comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dttui.errors import UsageError
from dttui.fleet.deployment.outcomes import Outcome, ToolDeployment, ToolSeen, is_newer
from dttui.fleet.deployment.wheels import Requirement, pinned
from dttui.i18n import _
from dttui.spec import printable

ROOM_BYTES = 16 * 1024**2
"""For a tool: 11 MiB while it is unpacked, as measured, and 8 from then on."""
_TOOLS_FILE = Path(__file__).with_name("tools.txt")


def named(names: Sequence[str]) -> tuple[Requirement, ...]:
    """Return the pins of tools, each once. Raises UsageError for a name that is none."""
    known = {item.project: item for item in pinned(_TOOLS_FILE.read_text())}
    for name in names:
        if name not in known:
            raise UsageError(
                _('there is no tool "{name}"').format(name=printable(name)),
                _("Those that dttui brings: {known}").format(known=", ".join(known)),
            )
    return tuple(known[name] for name in dict.fromkeys(names))


def planned(tool: Requirement, seen: Sequence[ToolSeen]) -> ToolDeployment:
    """Return what bringing a tool comes to, by what the host has."""
    there = next((item for item in seen if item.name == tool.project), None)
    if there is None:
        outcome = Outcome.INSTALLED
    elif not there.is_whole:
        outcome = Outcome.REPAIRED
    elif there.wheel in tool.hashes:
        outcome = Outcome.UP_TO_DATE
    else:
        outcome = Outcome.DOWNGRADED if is_newer(there.version, tool.version) else Outcome.UPGRADED
    return ToolDeployment(tool.project, tool.version, outcome)
