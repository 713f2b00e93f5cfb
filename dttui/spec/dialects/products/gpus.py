"""GPUs as other products ask for them, and what a command that starts one process makes of several."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dttui.i18n import _
from dttui.spec.dialects.translation import Leaf, Translated, in_order, make_note
from dttui.spec.findings import Finding
from dttui.spec.problems import PathKey

GPU: PathKey = ("resources", "gpu")
COUNT: PathKey = (*GPU, "count")
_TYPE: PathKey = (*GPU, "type")
_MEMORY: PathKey = (*GPU, "memory")
MOST_GPUS = 1024
MOST_NODES = 100_000
_LAUNCHERS = re.compile(
    r"\b(torchrun|torch\.distributed|accelerate|deepspeed|mpirun|mpiexec|srun|horovodrun|composer|colossalai|torchx|fabric)\b"
)
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([KMGT]?i?)(B?)", re.IGNORECASE)


@dataclass(frozen=True)
class GpuWish:
    """What a product gives a node."""

    count: int | None
    """How many GPUs; `None` where that is not said."""
    name: str = ""
    memory: str = ""
    """Least memory of each, `24GB`."""
    is_least: bool = False
    """Whether there may be more than `count`."""
    processes: int | None = None
    """How many a launcher starts on a node where it is not told; its own default where that is not said."""


def size(text: object, bare: str = "GB") -> str:
    """Return a size of memory as the job has it, `24GB`; nothing where it is none.

    Args:
        text: `24GB`, `4Gi`, `512MB`, `24+`, `24GB..80GB`: of a range, the least.
        bare: the unit of a number alone.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool) and math.isfinite(text) and text > 0:
        return f"{text:g}{bare}" if bare and text < 10**9 else ""
    if not isinstance(text, str):
        return ""
    match = _SIZE.fullmatch(text.split("..")[0].strip().removesuffix("+").strip())
    if match is None:
        return ""
    if not match[2]:
        return f"{match[1]}{bare}" if not match[3] else ""
    unit = match[2][0].upper() + ("i" if len(match[2]) == 2 else "")
    return f"{match[1]}{unit}B"


def number(value: object, most: int = MOST_GPUS) -> int | None:
    """Return a whole number that is written as one or as text, from 0 to `most`; `None` for all else."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value.strip()):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and isinstance(value, int) and 0 <= value <= most else None


def has_launcher(script: str) -> bool:
    """Whether a script names a launcher of ranks."""
    return _LAUNCHERS.search(script) is not None


def with_gpus(job: Translated, wish: GpuWish, origin: PathKey, script: str) -> Translated:
    """Return a job on the GPUs that its product gives each node.

    Args:
        job: as its script says it.
        wish: what each node has.
        origin: where the document says that.
        script: what starts it, by whose text a launcher is told.
    """
    leaves, notes = dict(job.leaves), list(job.notes)
    own = leaves.get(COUNT)
    if wish.name:
        leaves.setdefault(_TYPE, Leaf(wish.name, origin))
    if wish.memory:
        leaves.setdefault(_MEMORY, Leaf(wish.memory, origin))
    is_launched = has_launcher(script)
    if own is not None and own.is_implied and is_launched and wish.processes is not None:
        leaves[COUNT] = Leaf(wish.processes, origin)
    elif wish.count is None:
        return replace(job, leaves=leaves)
    elif own is None:
        leaves[COUNT] = Leaf(wish.count, origin)
    elif own.is_implied and wish.count == 0:
        leaves[COUNT] = Leaf(0, origin)
    elif own.is_implied and wish.count > 1 and not is_launched:
        leaves = _once_a_node(leaves, wish.count, origin)
    elif own.data != wish.count:
        notes += _disagreement(job, own, wish, origin)
    return replace(job, leaves=leaves, notes=in_order(notes))


def _once_a_node(leaves: Mapping[PathKey, Leaf], count: int, origin: PathKey) -> dict[PathKey, Leaf]:
    kept = dict(leaves)
    python, arguments = kept.pop(("run", "python"), None), kept.pop(("run", "args"), None)
    script, module = kept.pop(("run", "script"), None), kept.pop(("run", "module"), None)
    program = script or module
    if program is None:
        return dict(leaves)
    command = [
        python.data if python is not None else "${PYTHON}",
        *(["-m"] if module is not None else []),
        program.data,
    ]
    command += arguments.data if arguments is not None else ()
    kept[("run", "command")] = Leaf(tuple(command), program.origin)
    kept[("run", "per")] = Leaf("node", program.origin)
    kept[("framework",)] = Leaf("command", program.origin)
    kept = {key: leaf for key, leaf in kept.items() if key[0] != "framework_options"}
    kept[COUNT] = Leaf(count, origin)
    return kept


def _disagreement(job: Translated, own: Leaf, wish: GpuWish, origin: PathKey) -> list[Finding]:
    message = _("this gives a node {there} GPUs, and the command starts {count} processes on it")
    message = message.format(there=wish.count, count=own.data)
    is_short = isinstance(own.data, int) and wish.count is not None and own.data > wish.count
    return [make_note(job.source, origin, message, is_warning=is_short)]
