"""What a job wants done about a failure, as its plan carries it. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from dttui.inventory.models import Inventory
from dttui.spec.models import Recovery, RecoveryAction

LEAST_HEARTBEAT_S = 3.0
"""What is shorter would take a busy host or a slow link for a lost one."""

LEAST_STRAGGLER_S = 8.0
"""Ranks are asked four times in it."""

LEAST_HANG_S = 5.0
"""So long may pass while lines come from busy hosts."""


class RecoveryPolicy(BaseModel):
    """What a job allows where an attempt fails; by default nothing."""

    # What a later version adds is read past: whatever wrote the plan, its job goes on.
    model_config = ConfigDict(frozen=True, extra="ignore")

    action: RecoveryAction = RecoveryAction.RESTART
    max_restarts: int = 0
    """Attempts after the first that may follow each other without a step that none before has made."""
    min_nodes: int | None = None
    """Fewest nodes to go on with; all of them where it is `None`."""
    spares: tuple[str, ...] = ()
    """Environments, by name, that may take a node's place, in order."""
    unfit: tuple[str, ...] = ()
    """Such of them as cannot: the job could not be planned with them."""
    retry_on: tuple[str | int, ...] = ()
    """Causes, kinds and exit codes that are tried again."""
    no_retry_on: tuple[str | int, ...] = ()
    """Such that are not, before all else."""
    heartbeat_s: float = 30.0
    """Silence after which a node is unknown."""
    self_fence_s: float | None = None
    """Silence after which a host ends its ranks by itself; `None` for never."""

    hang_s: float | None = None
    """Without a step and a line of any rank, after the first step, so long is a hang; `None` for never."""
    hang_first_s: float | None = None
    """The same before the first step."""
    restarts_on_hang: bool = False
    """Whether a hang ends the attempt."""
    straggler_s: float | None = None
    """For how long the ranks have to wait for one of them before it is named; `None` for never."""
    replaces_stragglers: bool = False
    """Whether a spare takes its host's place, once there is a newer checkpoint."""

    @property
    def may_restart(self) -> bool:
        """Whether another attempt may ever follow."""
        return self.action is not RecoveryAction.STOP and self.max_restarts > 0

    @property
    def usable_spares(self) -> tuple[str, ...]:
        """Spares that may ever take a place."""
        if self.action is not RecoveryAction.REPLACE or not self.may_restart:
            return ()
        return tuple(name for name in self.spares if name not in self.unfit)


def policy_of(recovery: Recovery, inventory: Inventory, least: int | None = None) -> RecoveryPolicy:
    """Return what a job allows; its spares by the names of their environments.

    Args:
        recovery: as the job has it.
        inventory: where spares are looked up.
        least: with how many nodes torchrun goes on; `None` where the job is not elastic.
    """
    found = (inventory.find(spare) for spare in recovery.spares)
    return RecoveryPolicy(
        action=recovery.action,
        max_restarts=recovery.max_restarts if recovery.action is not RecoveryAction.STOP else 0,
        min_nodes=recovery.min_nodes or (least if recovery.action is RecoveryAction.CONTINUE else None),
        spares=tuple(dict.fromkeys(item.name for item in found if item is not None)),
        retry_on=recovery.retry_on,
        no_retry_on=recovery.no_retry_on,
        heartbeat_s=(heartbeat_s := max(recovery.heartbeat_s, LEAST_HEARTBEAT_S)),
        # Whoever follows a host may be silent for a third of a heartbeat where there is nothing to tell.
        self_fence_s=max(recovery.self_fence_s, heartbeat_s) if recovery.self_fence_s is not None else None,
        hang_s=max(recovery.hang_s, LEAST_HANG_S) if recovery.hang_s is not None else None,
        hang_first_s=max(recovery.hang_first_s, LEAST_HANG_S) if recovery.hang_first_s is not None else None,
        restarts_on_hang=recovery.on_hang == "restart",
        straggler_s=max(recovery.straggler_s, LEAST_STRAGGLER_S) if recovery.straggler_s is not None else None,
        replaces_stragglers=recovery.on_straggler == "replace"
        and recovery.action is RecoveryAction.REPLACE
        and recovery.max_restarts > 0,
    )
