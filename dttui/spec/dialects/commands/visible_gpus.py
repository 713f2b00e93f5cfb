"""The GPUs that a command line shows to its processes, as those that the one node of its job uses."""

from __future__ import annotations

from dttui.spec.cluster import gpu_ids_of
from dttui.spec.dialects.commands.launch import Launch
from dttui.spec.dialects.translation import Translation
from dttui.spec.problems import PathKey

_NAME = "CUDA_VISIBLE_DEVICES"
_VARIABLE: PathKey = ("run", "env", _NAME)
_COUNT: PathKey = ("resources", "gpu", "count")
_IDS: PathKey = ("resources", "gpu", "ids")


def carry_visible(translation: Translation, launch: Launch) -> None:
    """Have the job name them, where it has a process for each: the agent then sets them aside, and tells the ranks."""
    word = launch.environment.get(_NAME)
    numbers = gpu_ids_of(word.text) if word is not None and not word.holes else ()
    if numbers and translation.has(_VARIABLE) and translation.carried(_COUNT) == len(numbers):
        translation.take_back(_VARIABLE, _COUNT)
        translation.put(_IDS, numbers, (f"{_NAME}=",))
