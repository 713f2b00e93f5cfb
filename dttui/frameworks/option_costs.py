"""What an estimate makes of a framework's options: each that may change memory or time is classed by its framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from dttui.i18n import N_
from dttui.spec.models import Job

COUNTED = "counted"
"""The estimate changes with it."""
NEUTRAL = "neutral"
"""It changes neither the memory nor the time of a step; of a framework's options that is said."""


@dataclass(frozen=True)
class Uncounted:
    """An option that the estimate passes over."""

    reason: str
    """What it would change, as a message that is translated where it is told."""
    is_usual: Callable[[Any], bool] = lambda _value: False
    """Whether a value is what the estimate takes anyway."""
    matters_unsaid: Callable[[Job, Any], bool] = lambda _job, _value: False
    """Whether the default, too, is not what the estimate takes of a job."""


OptionCosts: TypeAlias = Mapping[str, "str | Uncounted"]
"""Option → its class."""

ON_DISK = Uncounted(N_("what goes to NVMe is taken to go to the host's memory"), lambda place: place != "nvme")
"""Of where something is offloaded to: the memory of the host is counted."""
OVERLAP = N_("how gradients are gathered and sent meanwhile is taken as usual")
CHECKPOINTS = N_("checkpoints are taken to be written as often as loses least")
ALL_PRESENT = Uncounted(N_("all nodes are taken to be there, from the first step to the last"))
