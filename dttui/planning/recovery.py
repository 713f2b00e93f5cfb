"""What a job wants done about a failure, as its plan carries it. Pure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from dttui.inventory.models import Inventory
from dttui.spec.models import Recovery, RecoveryAction

LEAST_HEARTBEAT_S = 3.0
"""What is shorter would take a busy host or a slow link for a lost one."""


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
    retry_on: tuple[str | int, ...] = ()
    """Causes, kinds and exit codes that are tried again."""
    no_retry_on: tuple[str | int, ...] = ()
    """Such that are not, before all else."""
    heartbeat_s: float = 30.0
    """Silence after which a node is unknown."""
    self_fence_s: float | None = None
    """Silence after which a host ends its ranks by itself; `None` for never."""

    @property
    def may_restart(self) -> bool:
        """Whether another attempt may ever follow."""
        return self.action is not RecoveryAction.STOP and self.max_restarts > 0


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
    )
