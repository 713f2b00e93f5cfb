"""Names of frameworks: of those that come with dttui, and of what installed packages add. Loads none of them."""

from __future__ import annotations

from functools import cache

FRAMEWORKS = "dttui.frameworks"
"""The group of entry points: name of a framework → the object that `dttui.frameworks.base.Framework` describes."""
OWN_FRAMEWORKS = {
    "pytorch-ddp": "dttui.frameworks.pytorch_ddp:PytorchDdp",
    "pytorch-fsdp": "dttui.frameworks.pytorch_fsdp:PytorchFsdp",
    "deepspeed": "dttui.frameworks.deepspeed:DeepSpeed",
    "horovod": "dttui.frameworks.horovod:Horovod",
    "megatron-lm": "dttui.frameworks.megatron_lm:MegatronLm",
    "tensorflow": "dttui.frameworks.tensorflow:TensorFlow",
    "command": "dttui.frameworks.command:Command",
}
"""Those that come with dttui, in the order in which a person is shown them; each as an entry point would name it."""
COMMAND = "command"
"""The one that starts `run.command` as it is."""
DEFAULT_FRAMEWORK = next(iter(OWN_FRAMEWORKS))
"""What a job is composed with that has named none yet."""
ALSO_CALLED: dict[str, tuple[str, ...]] = {
    "pytorch-ddp": ("torch", "pytorch", "torchrun"),
    "pytorch-fsdp": ("fsdp2",),
    "command": ("shell", "bash"),
}
"""Other words that people use for some of them."""


def is_megatron_with_deepspeed(word: str) -> bool:
    """Whether a word is for the two together, as seed 004 has them: `Megatron-LM + DeepSpeed`."""
    letters = "".join(filter(str.isalpha, word.casefold())).replace("and", "")
    return letters in ("megatrondeepspeed", "megatronlmdeepspeed", "deepspeedmegatron", "deepspeedmegatronlm")


@cache
def plugin_frameworks() -> frozenset[str]:
    """Return the names of the frameworks that are added."""
    from importlib.metadata import entry_points  # Every start reads this module, and few ask for names.

    return frozenset(entry_points(group=FRAMEWORKS).names)
