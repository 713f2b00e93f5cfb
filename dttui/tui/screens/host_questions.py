"""What a person is asked before something is done on hosts that changes them: what will happen to which. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dtagent

from dttui.app import EnvironmentStatus, is_newer
from dttui.i18n import _, ngettext
from dttui.tui.host_rows import hosts_text
from dttui.tui.host_work import HostAction
from dttui.tui.screens.dialogs import Choices


@dataclass(frozen=True)
class HostQuestion:
    """What is asked; the first button is what a person most likely wants, and takes nothing from the hosts."""

    title: str
    text: str
    choices: Choices


def question_of(action: HostAction, chosen: Sequence[EnvironmentStatus]) -> HostQuestion | None:
    """Return what is asked before an action; `None` where it changes nothing, or each host asks for itself."""
    if action is HostAction.DEPLOY:
        return _deployment(chosen)
    if action is HostAction.UPGRADE:
        return _upgrade(chosen)
    return _removal(chosen) if action is HostAction.REMOVE else None


def _deployment(chosen: Sequence[EnvironmentStatus]) -> HostQuestion:
    title = ngettext("Deploy the agent to {count} host?", "Deploy the agent to {count} hosts?", len(chosen))
    text = [
        _("dtagent {version} is brought to {hosts}.").format(version=dtagent.__version__, hosts=_names(chosen)),
        *_by_version(chosen),
        _("It needs no root, and goes into a directory of its own there."),
    ]
    return _question(HostAction.DEPLOY, title, text, chosen, _("Deploy"))


def _upgrade(chosen: Sequence[EnvironmentStatus]) -> HostQuestion:
    title = ngettext("Upgrade the agent on {count} host?", "Upgrade the agent on {count} hosts?", len(chosen))
    text = [
        _("{hosts} get dtagent {version}.").format(version=dtagent.__version__, hosts=_names(chosen)),
        *_by_version(chosen),
        _("Where there is no agent nothing is done: d deploys one."),
    ]
    return _question(HostAction.UPGRADE, title, text, chosen, _("Upgrade"))


def _removal(chosen: Sequence[EnvironmentStatus]) -> HostQuestion:
    title = ngettext("Remove the agent from {count} host?", "Remove the agent from {count} hosts?", len(chosen))
    text = [
        _("The agent is taken off {hosts}. Until it is deployed again no job can start there.").format(
            hosts=_names(chosen)
        ),
        _("What jobs have left there stays: logs, work directories, checkpoints."),
    ]
    running = [status for status in chosen if status.jobs]
    if running:
        refused = _("Jobs run on {hosts}: nothing is removed there. Stop them first.")
        text.append(refused.format(hosts=_names(running)))
    return HostQuestion(
        title.format(count=len(chosen)),
        "\n".join(text),
        (("keep", _("Keep"), "primary"), (HostAction.REMOVE.value, _("Remove"), "error")),
    )


def _by_version(chosen: Sequence[EnvironmentStatus]) -> list[str]:
    """Return what becomes of those that have an agent, by the version that they tell."""
    ours = dtagent.__version__
    cases: tuple[tuple[str, Callable[[str], bool]], ...] = (
        (
            _("{hosts}: of this version already; nothing is done there, unless it is damaged."),
            lambda version: not is_newer(ours, version) and not is_newer(version, ours),
        ),
        (
            _("{hosts}: the newer agent there stays; upgrade dttui on this login node."),
            lambda version: is_newer(version, ours),
        ),
    )
    told = []
    for text, test in cases:
        found = [status for status in chosen if status.agent_version and test(status.agent_version)]
        if found:
            told.append(text.format(hosts=_names(found)))
    busy = [status for status in chosen if status.jobs]
    if busy:
        told.append(
            _("{hosts}: jobs run there, and go on under the agent that started them.").format(hosts=_names(busy))
        )
    return told


def _question(
    action: HostAction, title: str, text: Sequence[str], chosen: Sequence[EnvironmentStatus], label: str
) -> HostQuestion:
    choices: Choices = ((action.value, label, "primary"), ("keep", _("Cancel"), "default"))
    return HostQuestion(title.format(count=len(chosen)), "\n".join(text), choices)


def _names(chosen: Sequence[EnvironmentStatus]) -> str:
    return hosts_text([status.environment.name for status in chosen])
