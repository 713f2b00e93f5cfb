"""Whether an attempt hangs: no step and no line of any rank for long.

Then its ranks are asked where they stand, and it is looked what their GPUs do: who computes may only take long.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dtagent.protocol.events import Event, EventKind
from dtagent.protocol.rpc import to_wire

from dttui.diagnosis import gpu_use
from dttui.diagnosis.gpu_use import UsedGpu
from dttui.diagnosis.stack_report import NodeStacks, summary, to_data
from dttui.diagnosis.standing import groups_of
from dttui.engine.attempt_log import AttemptLog
from dttui.engine.gpu_reader import ReadGpus
from dttui.engine.nodes.node_record import Steps
from dttui.engine.nodes.node_run import NodeRun
from dttui.engine.stacks import ask_stacks
from dttui.files import write_atomic
from dttui.i18n import Message, joined, msg
from dttui.jobs import JobDirectory
from dttui.planning.recovery import RecoveryPolicy
from dttui.redaction import Redaction
from dttui.spec.findings import Severity

LOOK_S = 5.0
"""How often it is looked at least."""
MOST_GAP_S = 3 * LOOK_S
"""Where it was longer not looked, this machine stood still, and what came meanwhile has still to be read."""
RECENT_S = 30.0
"""An attempt whose GPUs have all computed for so long is not ended."""
MOST_SAID = 4
"""Sentences of where ranks stand that a message holds."""
MOST_GROUPS = 64
"""Groups of ranks that an event holds."""
MOST_FILES = 32
"""Hangs of an attempt whose stacks are kept."""


@dataclass(frozen=True)
class Hang:
    """That an attempt hangs."""

    message: Message
    hint: Message
    ends: bool
    """Whether the attempt is to be ended for it."""


@dataclass(frozen=True)
class _Seen:
    """What ranks and GPUs were seen to do."""

    stacks: tuple[NodeStacks, ...]
    gpus: tuple[UsedGpu, ...]
    """Over the time of silence."""
    computes: bool
    """Whether all GPUs have computed of late."""


class HangWatch:
    """Notices that an attempt hangs, tells once of each time where its ranks stand, and tells when it goes on.

    Time in which a host is silent does not count: what its ranks do then is not known. An attempt that is to end for a
    hang is not ended while all its GPUs compute; that is looked at again until they do no more.

    Args:
        policy: says what a hang is.
        directory: of the job.
        log: of the attempt.
        nodes: returns those that take part.
        read_gpus: returns what their GPUs did.
        redaction: finds what no text may hold.
        wake: called once it is known where the ranks stand.
        told: what another controller has told of the attempt.
    """

    def __init__(
        self,
        policy: RecoveryPolicy,
        directory: JobDirectory,
        log: AttemptLog,
        nodes: Callable[[], Sequence[NodeRun]],
        read_gpus: ReadGpus,
        redaction: Redaction,
        wake: Callable[[], None],
        told: Iterable[Event] = (),
    ) -> None:
        self._policy = policy
        self._directory = directory
        self._log = log
        self._nodes = nodes
        self._read_gpus = read_gpus
        self._redaction = redaction
        self._wake = wake
        self._looked_at = self._since = time.monotonic()
        self._asking: asyncio.Task[_Seen | None] | None = None
        self._asked_at = 0.0
        hangs = [event.data for event in told if event.kind is EventKind.HANG]
        # One for which the attempt was to be ended, and was not, is found out anew.
        lasts = bool(hangs) and hangs[-1].get("severity") == Severity.WARNING.value
        self._told_at = self._looked_at if lasts else None
        """When the hang was told that lasts."""
        self._spares = lasts and bool(hangs[-1].get("spared"))
        """Whether the attempt would have been ended for that, and goes on since its GPUs compute."""
        self._count = sum(bool(data.get("file")) for data in hangs)

    @property
    def wait_s(self) -> float | None:
        """When to look again though no host says anything new; `None` for never."""
        return LOOK_S if self._policy.hang_s is not None or self._policy.hang_first_s is not None else None

    @property
    def is_asking(self) -> bool:
        """Whether the ranks are just being asked."""
        return self._asking is not None

    def look(self, steps: Steps, *, is_running: bool) -> Hang | None:
        """Have it told if it is so; return the hang where that was found out now.

        Args:
            steps: how far the training has come.
            is_running: whether all ranks run, and none is told to end.
        """
        if self.wait_s is None:
            return None
        now = time.monotonic()
        nodes = [node for node in self._nodes() if not node.is_over]
        self._note_look(now, nodes, is_running=is_running)
        heard_at = max(self._since, steps.heard_at)
        # The last words of ranks that are told to end are no sign that they go on.
        if self._told_at is not None and is_running and steps.heard_at > self._told_at:
            self._take_back(now - self._told_at)
        if self._asking is not None:
            return self._answered(steps, now - heard_at) if self._asking.done() else None
        limit_s = self._policy.hang_first_s if steps.last is None else self._policy.hang_s
        is_due = self._told_at is None or (self._spares and is_running and now - self._asked_at >= LOOK_S)
        if limit_s is not None and is_due and now - heard_at >= limit_s:
            self._asked_at = now
            self._asking = asyncio.create_task(self._ask(nodes, now - heard_at, is_again=self._told_at is not None))
            self._asking.add_done_callback(lambda _task: self._wake())
        return None

    def _note_look(self, now: float, nodes: Sequence[NodeRun], *, is_running: bool) -> None:
        """Begin to wait anew where nothing can be said of the time since the last look."""
        is_seen = bool(nodes) and all(node.silent_since is None for node in nodes)
        if not is_running or not is_seen or now - self._looked_at > MOST_GAP_S:
            self._since = now
        self._looked_at = now

    async def close(self) -> None:
        """Ask nobody any more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _ask(self, nodes: Sequence[NodeRun], silent_s: float, *, is_again: bool) -> _Seen | None:
        """Look what GPUs did and ask the ranks where they stand; `None` where it is known that GPUs compute, and so."""
        computes = gpu_use.all_compute(gpu_use.uses_of(await self._read_gpus(nodes, min(silent_s, RECENT_S))))
        if is_again and computes:
            return None
        stacks = await ask_stacks(nodes, None, self._redaction)
        return _Seen(stacks, gpu_use.uses_of(await self._read_gpus(nodes, silent_s)), computes)

    def _answered(self, steps: Steps, silent_s: float) -> Hang | None:
        asking, self._asking = self._asking, None
        if asking is None or steps.heard_at > self._asked_at or self._since > self._asked_at:
            return None  # It was slow, and did not hang; or is told to end.
        seen = asking.result()
        if seen is None:
            return None
        found = seen.stacks
        self._told_at = self._asked_at
        said = summary(found)
        groups = groups_of([(node.node, rank) for node in found for rank in node.ranks])
        told: dict[str, Any] = {"silent_s": round(silent_s, 1), "step": steps.last, "said": list(said)}
        if seen.gpus:
            told["gpus"] = gpu_use.to_data(seen.gpus)
        whole = {"time": time.time(), **told, "said": [str(line) for line in said], "groups": to_wire(groups)}
        file = self._kept({**whole, "nodes": to_data(found)})
        message = msg("no step and no line of any rank for {seconds:.0f} s", seconds=silent_s)
        if gpus := gpu_use.sentence(seen.gpus):
            message = msg("{message}, while {gpus}", message=message, gpus=gpus)
        if said:
            where = joined("; ", said[:MOST_SAID])
            message = msg("{message}: {where}", message=message, where=where)
        hint = msg("`dttui stacks {job}` asks again.", job=self._directory.job_id)
        if file:
            hint = msg("All stacks are in {path}; `dttui stacks {job}` asks again.",
                       path=str(self._directory.path / file), job=self._directory.job_id)  # fmt: skip
        self._spares = self._policy.restarts_on_hang and seen.computes
        ends = self._policy.restarts_on_hang and not self._spares
        if ends and file:
            hint = msg("All stacks are in {path}.", path=str(self._directory.path / file))
        if self._spares:
            hint = msg("`on_hang: restart` ends the attempt once they stop computing and still nothing is heard. "
                       "A line now and then, or a longer `hang_s`, says that such a phase is meant.")  # fmt: skip
        severity = Severity.ERROR if ends else Severity.WARNING
        data = {**told, "groups": to_wire(groups[:MOST_GROUPS]), "file": file, "severity": severity.value}
        self._log.add(EventKind.HANG, message, data={**data, "hint": hint, "restarts": ends, "spared": self._spares})
        return Hang(message, hint, ends)

    def _kept(self, body: dict[str, Any]) -> str:
        """Write it to a file; return its path below the job's directory, empty where it could not be."""
        folder = self._directory.hangs(self._log.attempt)
        path = folder / f"{self._count}.json"
        if self._count >= MOST_FILES:
            return ""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomic(path, json.dumps(body, indent=2))
        except OSError:
            return ""  # What matters most of it is in the event.
        self._count += 1
        return str(path.relative_to(self._directory.path))

    def _take_back(self, seconds: float) -> None:
        self._told_at, self._spares = None, False
        message = msg("after {seconds:.0f} s the ranks go on", seconds=seconds)
        self._log.add(EventKind.HANG, message, data={"severity": Severity.INFO.value})
