"""Which document is of which form, told by the keys at its top. A form is imported when a document of it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dttui.spec.yaml_source import YamlSource

if TYPE_CHECKING:
    from dttui.spec.dialects.translation import Translated

HOROVOD, LANGUAGE_MODEL, VISION = "horovod_config", "large_language_model_training", "computer_vision_training"


@dataclass(frozen=True)
class Dialect:
    """A form of document that says what a job file says."""

    name: str
    """What machines call it."""
    module: str
    """Of this package; its `translate` carries a document over."""
    keys: frozenset[str]
    """Keys at the top, any of which tells it from the others, unless `tells` asks for more."""
    tells: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether a document is of this form, where a key alone does not tell."""

    def is_form_of(self, data: Mapping[str, Any]) -> bool:
        """Whether a document is of this form."""
        return self.tells(data) if self.tells is not None else bool(self.keys & data.keys())

    def translate(self, source: YamlSource) -> Translated:
        """Carry a document over. Raises DocumentError with every problem of it."""
        translated: Translated = import_module(f"dttui.spec.dialects.{self.module}").translate(source)
        return translated


def _is_accelerate(data: Mapping[str, Any]) -> bool:
    from dttui.spec.dialects.products.yaml_kinds import is_accelerate

    return is_accelerate(data)


def _is_deepspeed(data: Mapping[str, Any]) -> bool:
    from dttui.spec.deepspeed_keys import KNOWN_KEYS
    from dttui.spec.dialects.products.yaml_kinds import is_deepspeed

    return is_deepspeed(data, frozenset(KNOWN_KEYS))


JOB_DIALECTS = (
    Dialect(
        "training-task-request",
        "api_request",
        frozenset({"taskName", "distributedConfig", "launchMode", "datasetVersionId"}),
    ),
    Dialect("horovod-config", "horovod", frozenset({HOROVOD})),
    Dialect("large-language-model-training", "language_model", frozenset({LANGUAGE_MODEL})),
    Dialect("computer-vision-training", "vision", frozenset({VISION})),
)
"""Forms that are taken wherever a job file is."""
IMPORTED_DIALECTS = (
    Dialect("accelerate-config", "accelerate", frozenset({"distributed_type", "compute_environment"}), _is_accelerate),
    Dialect(
        "deepspeed-config",
        "deepspeed",
        frozenset(
            {
                "zero_optimization",
                "train_batch_size",
                "train_micro_batch_size_per_gpu",
                "fp16",
                "bf16",
                "zero_allow_untested_optimizer",
            }
        ),
        _is_deepspeed,
    ),
)
"""Forms of other programs, which `dttui import` takes: they say too little to run by themselves."""

TOP_KEYS = tuple(key for dialect in JOB_DIALECTS for key in sorted(dialect.keys))
"""Keys that a document of one of the forms begins with."""


def recognise(source: YamlSource, dialects: tuple[Dialect, ...] = JOB_DIALECTS) -> Dialect | None:
    """Return the form of a document; `None` where it is of none of them."""
    if not isinstance(source.data, dict):
        return None
    return next((dialect for dialect in dialects if dialect.is_form_of(source.data)), None)
