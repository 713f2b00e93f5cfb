"""All frameworks, in the order in which a person is shown them."""

from __future__ import annotations

from dttui.errors import UsageError
from dttui.frameworks.base import Framework
from dttui.frameworks.command import Command
from dttui.frameworks.pytorch_ddp import PytorchDdp
from dttui.frameworks.upcoming import DEEPSPEED, HOROVOD, MEGATRON_LM, PYTORCH_FSDP, TENSORFLOW
from dttui.i18n import _
from dttui.spec.problems import did_you_mean

FRAMEWORKS: tuple[Framework, ...] = (
    PytorchDdp(),
    PYTORCH_FSDP,
    DEEPSPEED,
    HOROVOD,
    MEGATRON_LM,
    TENSORFLOW,
    Command(),
)
"""Those that can be launched, and those that are known by name only."""


def get_framework(name: str) -> Framework:
    """Return the framework of that name. Raises UsageError where there is none."""
    found = next((item for item in FRAMEWORKS if item.name == name), None)
    if found is None:
        names = [item.name for item in FRAMEWORKS]
        raise UsageError(_('no framework "{name}"').format(name=name), did_you_mean(name, names))
    return found
