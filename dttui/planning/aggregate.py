"""What a job uses of the chosen environments, in words and added up: GPUs by type, CPUs, memory, zones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from dttui.i18n import _, ngettext
from dttui.planning.gpu_names import gpu_type
from dttui.sanitize import clean_line
from dttui.words import gigabytes, gpu_numbers

if TYPE_CHECKING:
    from dtagent.protocol.facts import HostFacts

    from dttui.inventory.models import Environment
    from dttui.planning.models import Aggregate

_T = TypeVar("_T")

_MIB = 1024**2
_ROUNDED = 0.1
"""Share by which the memory in a GPU's name, in GB or GiB, may differ from what a driver tells."""


@dataclass(frozen=True)
class Choice:
    """An environment, what is known of its host, and how many of its GPUs the job asks for."""

    environment: Environment
    facts: HostFacts | None = None
    """What its agent says; wins over what the inventory declares, but for simulated GPUs."""
    gpus_asked: int | None = None
    """GPUs the job asks for; `None` for all it has."""
    ids_asked: tuple[int, ...] = ()
    """Which of them, by their numbers on the host; none where any will do."""

    @property
    def gpu_ids(self) -> tuple[int, ...]:
        """Which GPUs the job uses; none where any will do, as of simulated ones, which have no numbers."""
        return () if self.environment.simulated else self.ids_asked

    def used_of(self, each: Sequence[_T], count: int | None) -> tuple[_T, ...]:
        """Return what is said of the GPUs that are named; where none is, of the first `count`.

        Args:
            each: what is said of each GPU of the host, in its order; fewer where that is not known.
            count: how many; `None` for all.
        """
        if self.gpu_ids:
            known = dict(zip(self.gpu_numbers, each, strict=False))
            return tuple(known[index] for index in self.gpu_ids if index in known)
        return tuple(each[:count])

    @property
    def gpu_numbers(self) -> tuple[int, ...]:
        """The numbers of its GPUs, in its order: one that cannot be used now is left out."""
        if self.facts is not None and not self.environment.simulated:
            return tuple(gpu.index for gpu in self.facts.gpus)
        return tuple(range(self.gpu_count or 0))

    @property
    def gpu_count(self) -> int | None:
        """GPUs it has; `None` where neither its agent nor the inventory says."""
        if self.facts is not None and not self.environment.simulated:
            return len(self.facts.gpus)
        declared = self.environment.resources.gpu
        return declared.count if declared is not None else None

    @property
    def gpus_used(self) -> int | None:
        """GPUs the job uses of it; `None` where neither the job nor what is known of the host says."""
        return self.gpu_count if self.gpus_asked is None else self.gpus_asked

    @property
    def slots(self) -> int:
        """Processes of the job on it: one a GPU; one where it uses none, or nothing is known."""
        return self.gpus_used or 1

    @property
    def cuda_slots(self) -> int:
        """How many of the slots are NVIDIA GPUs."""
        return 0 if self.environment.simulated else self.gpus_used or 0

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """Each GPU's whole name, in the host's order; shorter than the count where names are not known."""
        if self.facts is not None and not self.environment.simulated:
            return tuple(gpu.name for gpu in self.facts.gpus)
        declared = self.environment.resources.gpu
        return (declared.type,) * declared.count if declared is not None and declared.type else ()

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The short type of each GPU, as people call it."""
        return tuple(gpu_type(name) for name in self.gpu_names)

    @property
    def gpu_memory_bytes(self) -> int | None:
        """Memory of its smallest GPU."""
        if self.facts is not None and not self.environment.simulated:
            sizes = [gpu.memory_total_mib for gpu in self.facts.gpus if gpu.memory_total_mib is not None]
            return min(sizes) * _MIB if sizes else None
        declared = self.environment.resources.gpu
        return declared.memory if declared is not None else None

    @property
    def used_gpu_memory_bytes(self) -> int | None:
        """Memory of all the GPUs that the job uses of it; the first ones where they differ and none is named."""
        used = min(self.gpus_used or 0, self.gpu_count or 0)
        if self.facts is not None and not self.environment.simulated:
            total = _sum_known(gpu.memory_total_mib for gpu in self.used_of(self.facts.gpus, used))
            return total * _MIB if total is not None else None
        size = self.gpu_memory_bytes
        return size * used if size is not None and used else None

    @property
    def cpu_count(self) -> int | None:
        """Logical CPUs."""
        if self.facts is not None:
            return self.facts.cpu_count
        declared = self.environment.resources.cpu
        return declared.cores if declared is not None else None

    @property
    def memory_bytes(self) -> int | None:
        """Host memory."""
        if self.facts is not None:
            return self.facts.memory_total_mib * _MIB
        declared = self.environment.resources.cpu
        return declared.memory if declared is not None else None


def _gpus(count: int) -> str:
    return ngettext("{count} GPU", "{count} GPUs", count).format(count=count)


def gpu_text(choice: Choice, *, memory: bool = True) -> str:
    """Return GPUs by type and count: `2×A100-80GB`, `1×V100 1×T4`, `no GPU`, `GPUs ?`; `1 of 2×A100-80GB` are used.

    Where they are named it is `GPU 0–2,5 of 8×A100-80GB`.

    With `memory`, a known type has the name that tells how much each has, whether it was declared or measured, and
    another its size: `2×Voodoo2 12 GB`.
    """
    named = _("GPU {ids}").format(ids=gpu_numbers(choice.gpu_ids)) if choice.gpu_ids else ""
    if choice.gpu_count is None:
        if named:
            return named
        return _("GPUs ?") if choice.gpus_used is None else _gpus(choice.gpus_used)
    if named or choice.gpus_used != choice.gpu_count:
        there = gpu_text(replace(choice, gpus_asked=None, ids_asked=()), memory=memory)
        if len(set(choice.gpu_types)) > 1:
            there = _gpus(choice.gpu_count)
        return _("{used} of {gpus}").format(used=named or choice.gpus_used, gpus=there)
    if choice.gpu_count == 0:
        return _("no GPU")
    types: dict[str, int] = {}
    for name in map(clean_line, choice.gpu_types):
        types[name] = types.get(name, 0) + 1
    if not types:
        return _gpus(choice.gpu_count)
    text = " ".join(f"{count}×{name}" for name, count in types.items())
    size = choice.gpu_memory_bytes
    if not memory or not size or len(types) > 1:
        return text
    called = _name_with_memory(choice.gpu_names[0], size)
    return f"{choice.gpu_count}×{called}" if called is not None else f"{text} {gigabytes(size)}"


@lru_cache(maxsize=256)
def _name_with_memory(name: str, size_bytes: int) -> str | None:
    """Return what the estimate calls a GPU; `None` where it knows none of that name with about so much memory."""
    from dttui.planning.cost.hardware import gpu_table  # Hosts of which nothing is known yet have no GPU to name.

    known = gpu_table().find(name, size_bytes)
    return known.name if known is not None and abs(size_bytes / known.memory_bytes - 1) < _ROUNDED else None


def aggregate(choices: Iterable[Choice]) -> Aggregate:
    """Add up what a job uses, in the order in which environments were chosen. What none of them says is not known.

    CPUs and memory are those of whole hosts: a job asks for least amounts of them, and sets none aside.
    """
    chosen = list(choices)
    types: dict[str, int] = {}
    for choice in chosen:
        for name in choice.used_of(choice.gpu_types, choice.gpus_used):
            types[name] = types.get(name, 0) + 1
    from dttui.planning.models import Aggregate  # A list of hosts is shown before anything of them is planned.

    return Aggregate(
        node_count=len(chosen),
        gpu_count=sum(_usable(choice) for choice in chosen),
        gpus_there=sum(choice.gpu_count or 0 for choice in chosen),
        gpu_types=types,
        simulated_gpu_count=sum(_usable(choice) for choice in chosen if choice.environment.simulated),
        gpus_known=all(choice.gpus_used is not None for choice in chosen),
        gpu_memory_bytes=_sum_known(choice.used_gpu_memory_bytes for choice in chosen),
        cpu_count=_sum_known(choice.cpu_count for choice in chosen),
        memory_bytes=_sum_known(choice.memory_bytes for choice in chosen),
        zones=tuple(dict.fromkeys(choice.environment.zone for choice in chosen if choice.environment.zone)),
    )


def _sum_known(amounts: Iterable[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _usable(choice: Choice) -> int:
    """GPUs the job uses, of those that are there; asking for more is an error of the plan."""
    used, there = choice.gpus_used or 0, choice.gpu_count
    return used if there is None else min(used, there)
