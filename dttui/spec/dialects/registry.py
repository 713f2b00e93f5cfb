"""Which document is of which form, told by the keys at its top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dttui.spec.dialects import accelerate, api_request, deepspeed, horovod, language_model, vision
from dttui.spec.dialects.translation import Translated
from dttui.spec.yaml_source import Source


@dataclass(frozen=True)
class Dialect:
    """A form of document that says what a job file says."""

    name: str
    """What machines call it."""
    keys: frozenset[str]
    """Keys at the top, any of which tells it from the others."""
    translate: Callable[[Source], Translated]
    """Carries a document over. Raises DocumentError with every problem of it."""


JOB_DIALECTS = (
    Dialect("training-task-request", frozenset(api_request.TELLING_KEYS), api_request.translate),
    Dialect("horovod-config", frozenset({horovod.ROOT_KEY}), horovod.translate),
    Dialect("large-language-model-training", frozenset({language_model.ROOT_KEY}), language_model.translate),
    Dialect("computer-vision-training", frozenset({vision.ROOT_KEY}), vision.translate),
)
"""Forms that are taken wherever a job file is."""
IMPORTED_DIALECTS = (
    Dialect("accelerate-config", frozenset(accelerate.TELLING_KEYS), accelerate.translate),
    Dialect("deepspeed-config", frozenset(deepspeed.TELLING_KEYS), deepspeed.translate),
)
"""Forms of other programs, which `dttui import` takes: they say too little to run by themselves."""

TOP_KEYS = tuple(key for dialect in JOB_DIALECTS for key in sorted(dialect.keys))
"""Keys that a document of one of the forms begins with."""


def recognise(source: Source, dialects: tuple[Dialect, ...] = JOB_DIALECTS) -> Dialect | None:
    """Return the form of a document; `None` where it is of none of them."""
    if not isinstance(source.data, dict):
        return None
    return next((dialect for dialect in dialects if dialect.keys & source.data.keys()), None)
