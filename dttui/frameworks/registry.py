"""All frameworks, in the order in which a person is shown them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from dttui.errors import UsageError
from dttui.frameworks.base import Framework
from dttui.frameworks.command import Command
from dttui.frameworks.deepspeed import DeepSpeed
from dttui.frameworks.horovod import Horovod
from dttui.frameworks.megatron_lm import MegatronLm
from dttui.frameworks.pytorch_ddp import PytorchDdp
from dttui.frameworks.pytorch_fsdp import PytorchFsdp
from dttui.frameworks.tensorflow import TensorFlow
from dttui.frameworks.unavailable import Unavailable
from dttui.i18n import _
from dttui.spec.added import FRAMEWORKS as GROUP
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
    return (*_OWN, *(_loaded(point) for point in entry_points(group=GROUP) if point.name not in names))


def get_framework(name: str) -> Framework:
    """Return the framework of that name. Raises UsageError where there is none."""
    found = next((item for item in _OWN if item.name == name), None)
    found = found or next((item for item in frameworks() if item.name == name), None)
    if found is None:
        names = [item.name for item in frameworks()]
        raise UsageError(_('no framework "{name}"').format(name=name), did_you_mean(name, names))
    return found


def _loaded(point: EntryPoint) -> Framework:
    """Return what a package adds; where it cannot be loaded, what says so."""
    try:
        framework: Framework = point.load()()
    except Exception as error:  # noqa: BLE001 - whatever somebody else's package raises
        package = point.dist.name if point.dist is not None else point.value
        reason = _("the framework {name} of {package} cannot be loaded: {error}")
        reason = reason.format(name=point.name, package=package, error=f"{type(error).__name__}: {error}")
        return Unavailable(
            point.name, point.name, reason, _("Remove the package {package}, or mend it.").format(package=package)
        )
    return framework
