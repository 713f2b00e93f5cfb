"""What is done on hosts at a person's word, and what came of it: it goes on whatever screen is shown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from dttui.app import AgentRemoval, AgentStatus, App, Checkup, Deployment, Prompter, Site, outcome_notes, outcome_of
from dttui.errors import DttuiError, HostError
from dttui.i18n import _, joined, ngettext
from dttui.inventory import Environment
from dttui.spec import Severity
from dttui.words import agent_outcome_name

LOG = logging.getLogger("dttui.tui")
KEYS_AT_A_TIME = 16
"""Hosts that are asked for their keys; a person answers for one at a time."""
_BROKEN_OFF = "unfinished"

Result = Deployment | AgentStatus | AgentRemoval | HostError


class HostAction(str, Enum):
    """What can be done on a host."""

    DEPLOY = "deploy"
    UPGRADE = "upgrade"
    REMOVE = "remove"
    TRUST = "trust"
    DOCTOR = "doctor"
    LOOK = "look"

    @property
    def changes_agent(self) -> bool:
        """Whether another agent may be there afterwards, or none."""
        return self in (HostAction.DEPLOY, HostAction.UPGRADE, HostAction.REMOVE)


class TaskStage(Enum):
    """How far it is: UNDER_WAY → DONE | FAILED."""

    UNDER_WAY = "under way"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class HostTask:
    """What is done on one host, or was last."""

    action: HostAction
    stage: TaskStage
    text: str
    """What is being done now, or what came of it; as it came, and so to be cleaned where it is shown."""
    outcome: str = ""
    """What came of it in a word or two, for where there is no room for all of `text`."""
    hint: str = ""
    """What to do where it failed."""
    at: float = 0.0
    """Unix time of this step."""

    @property
    def is_under_way(self) -> bool:
        """Whether it is not over."""
        return self.stage is TaskStage.UNDER_WAY


class HostWork:
    """Begins what is to be done, many hosts at a time, and knows of each how far it is."""

    def __init__(
        self,
        face: App,
        prompter: Prompter,
        start: Callable[[Coroutine[Any, Any, None]], object],
        reach: Callable[[str], None],
        options: Sequence[str] = (),
    ) -> None:
        """Do nothing yet.

        Args:
            face: does it.
            prompter: who is asked for keys and passwords.
            start: lets it go on beside all else.
            reach: has a host reached anew, since another agent may be there.
            options: what dttui is to be called with about the same hosts, for commands that are advised.
        """
        self._face = face
        self._prompter = prompter
        self._start = start
        self._reach = reach
        self._options = options
        self.tasks: dict[str, HostTask] = {}
        """By name of the environment."""
        self.checkups: dict[str, Checkup] = {}
        """The last one that a host was part of."""

    def is_busy(self, name: str) -> bool:
        """Whether something is under way on a host."""
        return name in self.tasks and self.tasks[name].is_under_way

    @property
    def under_way(self) -> int:
        """On how many hosts something is under way."""
        return sum(task.is_under_way for task in self.tasks.values())

    def begin(self, action: HostAction, environments: Sequence[Environment]) -> list[Environment]:
        """Begin on those hosts where nothing else is under way, and return them."""
        taken = [item for item in environments if not self.is_busy(item.name)]
        for item in taken:
            self._say(item.name, action, _("waiting for its turn"))
        if taken:
            self._start(self._do(action, taken))
        return taken

    async def _do(self, action: HostAction, environments: Sequence[Environment]) -> None:
        names = [item.name for item in environments]
        try:
            await self._act(action, environments)
        except DttuiError as error:
            self._fail_rest(action, names, error.message, error.hint)
        except Exception as error:
            LOG.warning("%s on hosts failed", action.value, exc_info=True)
            self._fail_rest(action, names, f"{type(error).__name__}: {error}")
        finally:
            self._fail_rest(action, names, agent_outcome_name(_BROKEN_OFF))

    async def _act(self, action: HostAction, environments: Sequence[Environment]) -> None:
        def step(name: str, text: str) -> None:
            self._say(name, action, text)

        def done(name: str, result: Result) -> None:
            self._end(name, action, result)

        agents = self._face.agents
        match action:
            case HostAction.DEPLOY | HostAction.UPGRADE:
                await agents.deploy(
                    environments,
                    self._prompter,
                    wheelhouse=None,
                    only_upgrade=action is HostAction.UPGRADE,
                    allow_downgrade=False,
                    on_progress=step,
                    on_done=done,
                )
            case HostAction.REMOVE:
                await agents.remove(
                    environments,
                    self._prompter,
                    force=False,
                    jobs=False,
                    checkpoints=False,
                    on_progress=step,
                    on_done=done,
                )
            case HostAction.LOOK:
                for item in environments:
                    step(item.name, _("looking at the host"))
                    self._reach(item.name)
                await agents.status(environments, self._prompter, on_done=done)
            case HostAction.TRUST:
                turns = asyncio.Semaphore(KEYS_AT_A_TIME)
                await asyncio.gather(*(self._trust(item, turns) for item in environments))
            case HostAction.DOCTOR:
                await self._check_up(environments)

    async def _trust(self, environment: Environment, turns: asyncio.Semaphore) -> None:
        name, action = environment.name, HostAction.TRUST
        async with turns:
            self._say(name, action, _("asking for its key"))
            try:
                fingerprint = await self._face.trust(environment, self._prompter, None)
            except DttuiError as error:
                self._fail(name, action, error.message, error.hint)
                return
        told = _("trusted: {fingerprint}").format(fingerprint=fingerprint)
        self._set(name, HostTask(action, TaskStage.DONE, told, _("trusted")))
        self._reach(name)

    async def _check_up(self, environments: Sequence[Environment]) -> None:
        action = HostAction.DOCTOR
        for item in environments:
            self._say(item.name, action, _("looking at the host"))

        def waiting(names: Collection[str], _until: float) -> None:
            for item in environments:
                is_asked = item.name in names
                self._say(item.name, action, _("looking at the host") if is_asked else _("has answered"))

        found = await self._face.doctor(environments, self._prompter, options=self._options, on_wait=waiting)
        for item in environments:
            self.checkups[item.name] = found
            self._set(item.name, _diagnosed(found, item.name))

    def _say(self, name: str, action: HostAction, text: str) -> None:
        self._set(name, HostTask(action, TaskStage.UNDER_WAY, text))

    def _end(self, name: str, action: HostAction, result: Result) -> None:
        notes = joined(", ", outcome_notes(result))
        if isinstance(result, HostError):
            self._fail(name, action, notes, result.hint)
        else:
            outcome = agent_outcome_name(outcome_of(result))
            told = _("{outcome}: {notes}").format(outcome=outcome, notes=notes) if notes else outcome
            self._set(name, HostTask(action, TaskStage.DONE, told, outcome))
        if action.changes_agent and not isinstance(result, HostError):
            self._reach(name)

    def _fail(self, name: str, action: HostAction, message: str, hint: str) -> None:
        self._set(name, HostTask(action, TaskStage.FAILED, message, hint=hint))

    def _fail_rest(self, action: HostAction, names: Sequence[str], message: str, hint: str = "") -> None:
        """Tell of hosts whose end was not told that there was one."""
        for name in names:
            if self.is_busy(name) and self.tasks[name].action is action:
                self._fail(name, action, message, hint)

    def _set(self, name: str, task: HostTask) -> None:
        before = self.tasks.get(name)
        if before is None or replace(before, at=0.0) != task:
            self.tasks[name] = replace(task, at=time.time())


def _diagnosed(found: Checkup, name: str) -> HostTask:
    """Return what a check-up came to for one host."""
    severities = [item.finding.severity for item in found.of(Site.HOST, name)]
    errors, warnings = severities.count(Severity.ERROR), severities.count(Severity.WARNING)
    told = []
    if errors:
        told.append(ngettext("{count} error", "{count} errors", errors).format(count=errors))
    if warnings:
        told.append(ngettext("{count} warning", "{count} warnings", warnings).format(count=warnings))
    stage = TaskStage.FAILED if errors else TaskStage.DONE
    text = joined(" · ", told) or _("nothing is wrong")
    return HostTask(HostAction.DOCTOR, stage, text, text)
