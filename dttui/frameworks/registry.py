"""All frameworks: those that come with dttui, in the order of `OWN_FRAMEWORKS`, and those of installed packages."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from dttui.errors import UsageError
from dttui.frameworks.base import Framework
from dttui.frameworks.plugins import load
from dttui.frameworks.traits import Traits, Usual
from dttui.i18n import _
from dttui.spec.entry_points import FRAMEWORKS as GROUP
from dttui.spec.entry_points import OWN_FRAMEWORKS, is_megatron_with_deepspeed
from dttui.spec.models import Job, megatron_with_deepspeed
from dttui.spec.problems import did_you_mean


@cache
def frameworks() -> tuple[Framework, ...]:
    """Return those that come with dttui, and those that other installed packages add by entry points."""
    own = map(_own, OWN_FRAMEWORKS)
    return (*own, *(load(point) for point in entry_points(group=GROUP) if point.name not in OWN_FRAMEWORKS))


def get_framework(name: str) -> Framework:
    """Return the framework of that name. Raises UsageError where there is none."""
    if name in OWN_FRAMEWORKS:
        return _own(name)
    found = next((item for item in frameworks() if item.name == name), None)
    if found is None and is_megatron_with_deepspeed(name):
        raise UsageError(*megatron_with_deepspeed())
    if found is None:
        names = [item.name for item in frameworks()]
        raise UsageError(_('no framework "{name}"').format(name=name), did_you_mean(name, names) or "dttui init --list")
    return found


def traits_of(name: str | None) -> Traits:
    """Return what is told of a framework; the usual where there is none of that name, or none any more."""
    try:
        return get_framework(name) if name else Usual()
    except UsageError:
        return Usual()


def context_degree(job: Job) -> int:
    """Return over how many ranks each sequence is spread; 1 where the framework has no option for that."""
    return _of_option(job, traits_of(job.framework).context_option)


def expert_degree(job: Job) -> int:
    """Return over how many ranks experts are spread; 1 where the framework has no option for that."""
    return _of_option(job, traits_of(job.framework).expert_option)


def _of_option(job: Job, option: str | None) -> int:
    said = job.framework_options.get(option) if option is not None else None
    return said if type(said) is int and said > 0 else 1


@cache
def _own(name: str) -> Framework:
    """Return one that comes with dttui; the others are not imported."""
    framework: Framework = EntryPoint(name, OWN_FRAMEWORKS[name], GROUP).load()()
    return framework
