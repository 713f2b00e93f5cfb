"""What the compose screen and the headless printer say of a job that is about to start, or has just been started."""

from __future__ import annotations

from dttui.frameworks import get_framework
from dttui.i18n import _, ngettext
from dttui.inventory.models import Inventory
from dttui.planning.compose_state import ComposeState
from dttui.planning.models import Aggregate
from dttui.planning.start_time import ONE_NODE_S


def success_message(state: ComposeState, inventory: Inventory, aggregate: Aggregate) -> tuple[str, str]:
    """Return title and description of what is said once a job is launched."""
    title = _("Training job created")
    if not state.is_distributed:
        names = ", ".join(item.name for item in state.environments(inventory))
        return title, _("uses environment: {name}").format(name=names)
    nodes = ngettext("{count} node", "{count} nodes", len(state.selected)).format(count=len(state.selected))
    gpus = ngettext("{count} GPU in all", "{count} GPUs in all", aggregate.gpu_count)
    told = gpu_sum(aggregate) if aggregate.leaves_gpus else gpus.format(count=aggregate.gpu_count)
    return title, _("distributed · {nodes} · {gpus}").format(nodes=nodes, gpus=told)


def gpu_sum(aggregate: Aggregate) -> str:
    """Return how many GPUs the job uses: `14 GPUs`, or `4 of 14 GPUs` where the environments have more."""
    if aggregate.leaves_gpus:
        return _("{used} of {total} GPUs").format(used=aggregate.gpu_count, total=aggregate.gpus_there)
    return ngettext("{count} GPU", "{count} GPUs", aggregate.gpu_count).format(count=aggregate.gpu_count)


def estimate_text(state: ComposeState) -> str:
    """Return what the summary says of the start."""
    if state.is_distributed:
        label = get_framework(state.framework).label if state.framework else _("no framework")
        return _("Distributed training · uses {framework}").format(framework=label)
    return _("Quick start: training is expected to begin within {seconds:.0f} seconds").format(seconds=ONE_NODE_S)


def network_note() -> str:
    """Return the note of the panel for distributed training."""
    return _("Distributed training runs on several nodes at once; make sure that all of them can reach each other")
