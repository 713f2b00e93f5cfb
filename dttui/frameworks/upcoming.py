"""Frameworks that a job file may name and this version cannot launch yet: shown with what they are for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dttui.errors import UsageError
from dttui.frameworks.base import JobLayout, NodeLayout, NoOptions, Rank
from dttui.frameworks.bundle import PlannedFile, PlannedProcess
from dttui.i18n import _
from dttui.spec.findings import Finding, error
from dttui.spec.models import Job
from dttui.spec.section import Section


@dataclass(frozen=True)
class Upcoming:
    """A framework known by name. Its texts are functions, so that they come in the language of the moment."""

    name: str
    label: str
    _summary: Callable[[], str]
    _description: Callable[[], str]
    _features: Callable[[], tuple[str, ...]]
    requires: Sequence[str]
    available: bool = False
    options: type[Section] = NoOptions
    rank: Rank = Rank.SLOT
    needs_ports: bool = False

    @property
    def summary(self) -> str:
        """Its kind of parallelism."""
        return self._summary()

    @property
    def description(self) -> str:
        """What it is for."""
        return self._description()

    @property
    def features(self) -> Sequence[str]:
        """What it offers."""
        return self._features()

    def check(self, job: Job) -> list[Finding]:
        """Say that it is not there yet."""
        return [error("framework-not-yet", "framework", self._refusal(), _hint())]

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Refuse: raises UsageError."""
        raise UsageError(self._refusal(), _hint())

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Refuse: raises UsageError."""
        raise UsageError(self._refusal(), _hint())

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Refuse: raises UsageError."""
        raise UsageError(self._refusal(), _hint())

    def _refusal(self) -> str:
        return _("{framework} cannot be launched by this version yet").format(framework=self.label)


def _hint() -> str:
    return _("Choose pytorch-ddp, or start it yourself with the framework command.")


DEEPSPEED = Upcoming(
    "deepspeed",
    "DeepSpeed",
    lambda: _("Microsoft's distributed training"),
    lambda: _("Very large training runs with ZeRO."),
    lambda: (
        _("ZeRO memory optimisation"),
        _("mixed precision"),
        _("gradient accumulation"),
        _("pipeline parallelism"),
        _("tensor parallelism"),
    ),
    ("torch", "deepspeed"),
)
HOROVOD = Upcoming(
    "horovod",
    "Horovod",
    lambda: _("Uber's distributed framework"),
    lambda: _("One way to train under TensorFlow, PyTorch and MXNet."),
    lambda: (_("several frameworks"), _("ring all-reduce"), _("easy to add to a script"), _("efficient communication")),
    ("horovod",),
)
MEGATRON_LM = Upcoming(
    "megatron-lm",
    "Megatron-LM",
    lambda: _("NVIDIA's large model training"),
    lambda: _("GPT-like large models."),
    lambda: (_("tensor parallelism"), _("pipeline parallelism"), _("made for Transformers"), _("very large training")),
    ("torch", "megatron-core"),
)
TENSORFLOW = Upcoming(
    "tensorflow",
    "TensorFlow",
    lambda: _("multi-worker and parameter server"),
    lambda: _("TensorFlow's own distribution strategies, from TF_CONFIG."),
    lambda: (_("mirrored workers"), _("parameter servers")),
    ("tensorflow",),
)
