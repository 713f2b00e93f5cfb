"""What is told of a framework beside how it launches: each member may be left out, and then is what most have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from dttui.frameworks.option_costs import OptionCosts
from dttui.i18n import N_
from dttui.spec.models import Job

TORCH_CALL = "init_process_group(timeout=…)"
WHOLE_MODEL = N_("{framework} keeps the whole model in each rank, and the job splits it: that is left to the script")
"""What is told of a job that splits tensors or stages, where the framework makes replicas alone."""


@dataclass(frozen=True)
class ScriptImports:
    """By what a script is known to be written for a framework."""

    modules: tuple[str, ...]
    """One of them: its own package first, then those that use it for a script."""
    otherwise: str
    """What follows where none is imported, as the end of a sentence."""


TORCH_INIT = "init_process_group"


class GroupForming(Enum):
    """Whether the ranks of a job form one process group, and dttui sees it."""

    EXPECTED = "expected"
    """A job whose ranks form none is warned of."""
    POSSIBLE = "possible"
    """It is the script's affair; a job may require it."""
    UNSEEN = "unseen"
    """Nobody could see it, so that no job can require it."""


@dataclass(frozen=True)
class ProcessGroup:
    """How ranks come together."""

    forming: GroupForming = GroupForming.POSSIBLE
    call: str = TORCH_INIT
    """The call in which a rank waits for the others."""
    seen_at_once: int | None = None
    """Ranks up to which one look at their connections is enough; `None` for any number."""
    why_none: str | None = None
    """Why ranks may have formed none, as a message to translate; `None` for the reasons that torch's may have."""
    why_several: str | None = None
    """Why they may have formed several, likewise."""

    @property
    def is_torchs(self) -> bool:
        """Whether they do by torch's own call, in processes that can be asked when they called its collectives."""
        return self.call == TORCH_INIT and self.forming is not GroupForming.UNSEEN


class Spread(Enum):
    """How a model and its states are spread over ranks."""

    REPLICAS = "replicas"
    ZERO_1 = "ZeRO 1"
    ZERO_2 = "ZeRO 2"
    ZERO_3 = "ZeRO 3"
    STAGES = "stages"
    TENSORS = "tensors"


@dataclass(frozen=True)
class SizeGuide:
    """For which sizes of models a framework is the usual one."""

    below: float
    """Parameters; of several frameworks the one with the least bound counts."""
    reason: str
    """In a line."""


@dataclass(frozen=True)
class SettingReach:
    """What comes of something that the job says of its collectives; by itself: the framework is told it."""

    call: str = ""
    """The call by which a script passes it on from the file of DTTUI_CONFIG."""
    reason: str = ""
    """Why nothing comes of it, as a message to translate."""


TOLD = SettingReach()
"""The framework is told it."""
BY_THE_SCRIPT = SettingReach("dttui_collectives.data_parallel(model)")
"""The script wraps its model by it, in the place of `DistributedDataParallel`."""
COMPRESSIONS = ("fp16", "bf16", "topk", "powersgd")
"""What `communication.compression` can be besides none."""


class Traits(Protocol):
    """The members of a framework that may be left out."""

    @property
    def verdicts(self) -> Sequence[str]:
        """What a preflight has read by the framework's own code on a host, where it is there.

        Each is a name of `dtagent.payload.validation`, or `module:function` of a package of the job's interpreter.
        """
        return ()

    @property
    def script_imports(self) -> ScriptImports | None:
        """What a script written for it imports; `None` where any will do."""
        return None

    @property
    def timeout_call(self) -> str | None:
        """The call by which a script passes `communication.collective_timeout` on.

        `None` where the framework is told it, or has none.
        """
        return TORCH_CALL

    @property
    def collective_reach(self) -> Mapping[str, SettingReach]:
        """What comes of `buffer_size`, of `compression` and each kind, and of `overlap` and `overlap.false`.

        What is not named here is left to the script.
        """
        return {}

    @property
    def process_group(self) -> ProcessGroup:
        """How its ranks come together."""
        return ProcessGroup()

    @property
    def uses_torch(self) -> bool:
        """Whether torch, and the CUDA and NCCL that it is built with, can matter to it."""
        return True

    @property
    def plain_protocol(self) -> str:
        """How its ranks talk where NCCL cannot be had: `gloo` or `gRPC`."""
        return "gloo"

    @property
    def has_mpi(self) -> bool:
        """Whether its ranks can be started by the `mpirun` of one host, and talk by MPI."""
        return False

    @property
    def has_parameter_servers(self) -> bool:
        """Whether a node may have the role `parameter_server`."""
        return False

    @property
    def when_split(self) -> str | None:
        """What is said of a job that splits tensors or stages, as a message to translate; `None` where it may."""
        return None

    @property
    def only_starts(self) -> bool:
        """Whether it starts ranks and leaves to the script what the strategy says."""
        return False

    @property
    def may_share_unequally(self) -> bool:
        """Whether ranks may have unequal shares of a step's samples, where the script does its part."""
        return False

    @property
    def context_option(self) -> str | None:
        """Which of its options says over how many ranks each sequence is spread."""
        return None

    @property
    def expert_option(self) -> str | None:
        """Which of its options says over how many ranks experts are spread."""
        return None

    @property
    def usual_zero_stage(self) -> int:
        """How it shards where a job does not say."""
        return 0

    @property
    def overlaps_gradients(self) -> bool:
        """Whether gradients travel while the backward pass makes others, where a job does not say."""
        return True

    def usual_model(self, job: Job) -> Mapping[str, Any]:
        """Return what models have where `model` does not say: `attention`, `dropout`; as the script is told.

        Args:
            job: the job, whose options or arguments may say so.
        """
        return {}

    def usual_layout(self, job: Job) -> Mapping[str, Any]:
        """Return what of a layout its options say, by the names of `Layout` in dttui.planning.cost.layout.

        Args:
            job: the job, whose options or arguments may say so.
        """
        return {"fused": False}

    def shards_within_nodes(self, job: Job) -> bool:
        """Whether ranks of a node share out a model among themselves, each node having a copy (hybrid sharding)."""
        return False

    def overlaps_tensors(self, job: Job) -> bool:
        """Whether tensor-parallel ranks that split the sequence send parts of products while they compute others."""
        return False

    @property
    def spreads(self) -> Mapping[Spread, int]:
        """How it can spread a model, each with its place among the frameworks that can: the first has 0."""
        return {}

    @property
    def size_guide(self) -> SizeGuide | None:
        """For which sizes of models it is the usual one; `None` for none."""
        return None

    @property
    def option_costs(self) -> OptionCosts | None:
        """What an estimate makes of each of its options; `None` where nobody has classed them."""
        return None

    @property
    def findings_of_imports(self) -> Mapping[str, str]:
        """Code of a finding → the module that it is about: it is not told of a script that does without."""
        return {}

    @property
    def arguments_advice(self) -> str | None:
        """What helps a script that refuses arguments which the framework adds, as a message to translate."""
        return None

    @property
    def directory_args(self) -> Sequence[str]:
        """Arguments that make its scripts write to `{own}`, where others have them write to what the job names."""
        return ()

    @property
    def resume_args(self) -> Sequence[str]:
        """What `recovery.checkpoint.resume_args` is by default."""
        return ()

    @property
    def template(self) -> str | None:
        """The template that stands for it; `None` for one of its own name, if there is one."""
        return None


class Usual(Traits):
    """A framework of which nothing is known."""
