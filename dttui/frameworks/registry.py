"""All frameworks, in the order in which a person is shown them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from dttui.errors import UsageError
from dttui.frameworks.base import Framework
from dttui.frameworks.command import Command
from dttui.frameworks.deepspeed import DeepSpeed
from dttui.frameworks.horovod import Horovod
from dttui.frameworks.megatron_lm import MegatronLm
from dttui.frameworks.plugins import load
from dttui.frameworks.pytorch_ddp import PytorchDdp
from dttui.frameworks.pytorch_fsdp import PytorchFsdp
from dttui.frameworks.tensorflow import TensorFlow
from dttui.i18n import _
from dttui.spec.entry_points import FRAMEWORKS as GROUP
from dttui.spec.problems import did_you_mean

_OWN: tuple[Framework, ...] = (
    PytorchDdp(),
    PytorchFsdp(),
    DeepSpeed(),
    Horovod(),
    MegatronLm(),
    TensorFlow(),
    Command(),
)


@cache
def frameworks() -> tuple[Framework, ...]:
    """Return those that come with dttui, and those that other installed packages add by entry points."""
    names = {item.name for item in _OWN}
    return (*_OWN, *(load(point) for point in entry_points(group=GROUP) if point.name not in names))


def get_framework(name: str) -> Framework:
    """Return the framework of that name. Raises UsageError where there is none."""
    found = next((item for item in _OWN if item.name == name), None)
    found = found or next((item for item in frameworks() if item.name == name), None)
    if found is None:
        names = [item.name for item in frameworks()]
        raise UsageError(_('no framework "{name}"').format(name=name), did_you_mean(name, names) or "dttui init --list")
    return found
