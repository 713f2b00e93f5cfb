"""Megatron-LM's arguments, which the job has keys for: they are taken out of the script's and said there."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dttui.spec.dialects.commands.launch import Launch, ProgramKind
from dttui.spec.dialects.translation import Translation
from dttui.spec.problems import PathKey

_DEGREES = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size")
_NUMBERS = {
    "--tensor-model-parallel-size": "strategy.tensor_parallel_size",
    "--pipeline-model-parallel-size": "strategy.pipeline_parallel_size",
    "--num-virtual-stages-per-pipeline-rank": "strategy.pipeline_parallel.virtual_stages",
    "--context-parallel-size": "framework_options.context_parallel_size",
    "--expert-model-parallel-size": "framework_options.expert_parallel_size",
    "--micro-batch-size": "strategy.pipeline_parallel.micro_batch_size",
    "--global-batch-size": "strategy.data_parallel.batch_size",
    "--num-layers": "model.layers",
    "--hidden-size": "model.hidden_size",
    "--num-attention-heads": "model.heads",
    "--seq-length": "model.seq_length",
    "--vocab-size": "model.vocab_size",
    "--save-interval": "framework_options.save_interval",
}
"""Arguments with a number, and the key of the job that dttui passes on as each."""
_WORDS = {
    "--recompute-granularity": "strategy.recomputation",
    "--save": "recovery.checkpoint.dir",
}
_FLAGS: dict[str, tuple[str, str | bool | int]] = {
    "--sequence-parallel": ("strategy.sequence_parallel", True),
    "--use-distributed-optimizer": ("strategy.zero_stage", 1),
    "--recompute-activations": ("strategy.recomputation", "selective"),
    "--fp16": ("model.precision", "fp16"),
    "--bf16": ("model.precision", "bf16"),
}


def is_megatron(launch: Launch) -> bool:
    """Whether a script takes Megatron-LM's arguments, and is not given to DeepSpeed besides."""
    texts = [word.text.partition("=")[0] for word in launch.arguments]
    return launch.kind is not ProgramKind.COMMAND and any(degree in texts for degree in _DEGREES)


def carry_megatron(translation: Translation, arguments: Sequence[str], origin: PathKey) -> tuple[str, ...]:
    """Give the job what it has keys for, and return the arguments that are left."""
    left: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        name, separator, value = word.partition("=")
        if name in _FLAGS and not separator:
            path, setting = _FLAGS[name]
            translation.put(tuple(path.split(".")), setting, origin)
        elif name in _NUMBERS or name in _WORDS:
            if not separator:
                value = words.pop(0) if words else ""
            _put(translation, name, value, origin, left)
        elif name == "--distributed-backend":
            if not separator and words:
                words.pop(0)
        else:
            left.append(word)
    return tuple(left)


def _put(translation: Translation, name: str, value: str, origin: PathKey, left: list[str]) -> None:
    path = tuple((_NUMBERS.get(name) or _WORDS[name]).split("."))
    if name in _NUMBERS and re.fullmatch("[0-9]{1,12}", value):
        translation.put(path, int(value), origin)
    elif (name == "--recompute-granularity" and value in ("full", "selective")) or (name == "--save" and value):
        translation.put(path, value, origin)
    else:
        left += [name, value] if value else [name]
