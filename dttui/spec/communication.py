"""The section `communication`: how ranks talk, and by which algorithms."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from dttui.i18n import _
from dttui.spec.durations import DURATION, parse_duration
from dttui.spec.effects import FOR_SCRIPT, LAUNCHED
from dttui.spec.problems import PathKey, PlacedValueError
from dttui.spec.section import Section

ReductionName = Literal["sum", "mean", "max", "min"]
CompressionName = Literal["none", "fp16", "bf16", "topk", "powersgd"]

DEFAULT_RENDEZVOUS = "5m"
LEAST_RENDEZVOUS_S = 5.0
MOST_RENDEZVOUS_S = 24 * 3600.0


def _bounded(text: str) -> str:
    if not LEAST_RENDEZVOUS_S <= parse_duration(text) <= MOST_RENDEZVOUS_S:
        raise ValueError(_("must be from {least} to {most}").format(least="5s", most="24h"))
    return text


class AllReduce(Section):
    """Settings of all-reduce."""

    algorithm: Literal["ring", "tree", "butterfly"] | None = Field(default=None, json_schema_extra=LAUNCHED)
    """Algorithm."""
    buffer_size: int | None = Field(default=None, gt=0, json_schema_extra=LAUNCHED)
    """Bytes a bucket."""
    op: ReductionName | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """What becomes of the ranks' values; `sum` where nothing is said."""


class Broadcast(Section):
    """Settings of broadcast."""

    algorithm: Literal["tree", "linear"] | None = Field(default=None, json_schema_extra=LAUNCHED)
    """Algorithm."""


class Gather(Section):
    """Settings of gather."""

    algorithm: Literal["linear", "tree"] | None = Field(default=None, json_schema_extra=LAUNCHED)
    """Algorithm."""


class AllGather(Section):
    """Settings of all-gather."""

    algorithm: Literal["ring", "tree", "linear"] | None = Field(default=None, json_schema_extra=LAUNCHED)
    """Algorithm."""


class ReduceScatter(Section):
    """Settings of reduce-scatter."""

    algorithm: Literal["ring", "tree", "butterfly"] | None = Field(default=None, json_schema_extra=LAUNCHED)
    """Algorithm."""
    op: ReductionName | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """What becomes of the ranks' values; `sum` where nothing is said."""


class CollectiveOps(Section):
    """Settings of collective operations: another place for `allreduce`, `broadcast` and `gather` of `communication`.

    The script finds them in the file that DTTUI_CONFIG names. What stands in both places must be the same.
    """

    allreduce: AllReduce | None = None
    """All-reduce."""
    broadcast: Broadcast | None = None
    """Broadcast."""
    gather: Gather | None = None
    """Gather."""
    allgather: AllGather | None = None
    """All-gather."""
    reduce_scatter: ReduceScatter | None = None
    """Reduce-scatter."""


class Communication(Section):
    """How ranks talk."""

    protocol: Literal["NCCL", "MPI", "gRPC", "custom"] | None = None
    """Protocol; NCCL where every slot is a CUDA GPU, else gloo."""
    collective_ops: CollectiveOps | None = None
    """Collective operations."""
    allreduce: AllReduce | None = None
    """All-reduce."""
    broadcast: Broadcast | None = None
    """Broadcast."""
    gather: Gather | None = None
    """Gather."""
    compression: CompressionName | None = Field(default=None, json_schema_extra=LAUNCHED)
    """What gradients are sent as: numbers of 16 bits, the largest of them alone, or factors of low rank.

    The framework is told it where it has such a setting; a plan says where it has not, or the script passes it on.
    """
    overlap: bool | None = Field(default=None, json_schema_extra=LAUNCHED)
    """Whether gradients are reduced while the backward pass goes on; as the framework does by itself without it."""
    rendezvous_timeout: Annotated[str, Field(pattern=DURATION), AfterValidator(_bounded)] | None = Field(
        default=None, json_schema_extra=LAUNCHED
    )
    """How long ranks may take until all have started, `90s`, `20m`, `1h`; `5m` by default.

    Then the job fails and names who is missing. torchrun's own limit is twice that.
    """
    collective_timeout: Annotated[str, Field(pattern=DURATION), AfterValidator(_bounded)] | None = Field(
        default=None, json_schema_extra=LAUNCHED
    )
    """How long a rank waits in a collective for the others; without it, as long as the framework does by itself.

    DeepSpeed and Megatron-LM are told it. Other scripts find it, in seconds, as `distributed.timeout_s` in the file of
    DTTUI_CONFIG, and have to pass it on: to torch by `init_process_group(timeout=…)`.
    """

    measure: bool | None = Field(default=None, json_schema_extra=LAUNCHED)
    """Whether ranks measure which share of a step they have collectives of torch under way, and report it.

    It is shown beside the estimate's. Time that hides behind computing counts, and so does waiting for slower ranks.
    """

    @property
    def rendezvous_timeout_s(self) -> float:
        """The same in seconds."""
        return parse_duration(self.rendezvous_timeout or DEFAULT_RENDEZVOUS)

    @property
    def collective_timeout_s(self) -> float | None:
        """The same in seconds."""
        return None if self.collective_timeout is None else parse_duration(self.collective_timeout)

    @property
    def all_reduce(self) -> AllReduce | None:
        """What is said of all-reduce, in whichever place."""
        return self.allreduce or (self.collective_ops.allreduce if self.collective_ops is not None else None)

    @property
    def all_reduce_place(self) -> str:
        """Where that stands: `allreduce`, or `collective_ops.allreduce`."""
        return "allreduce" if self.allreduce is not None else "collective_ops.allreduce"

    def algorithms(self) -> dict[str, str]:
        """Return the algorithms that are named, by the place that each is said of, such as `allreduce`."""
        named: dict[str, str] = {}
        for section, prefix in ((self, ""), (self.collective_ops, "collective_ops.")):
            for name in CollectiveOps.model_fields:
                algorithm = getattr(getattr(section, name, None), "algorithm", None)
                if algorithm is not None and name not in {place.rpartition(".")[2] for place in named}:
                    named[prefix + name] = algorithm
        return named

    @model_validator(mode="after")
    def _agree(self) -> Communication:
        other = self.collective_ops or CollectiveOps()
        faults: list[tuple[PathKey, str]] = []
        for name in CollectiveOps.model_fields.keys() & Communication.model_fields.keys():
            here, there = getattr(self, name), getattr(other, name)
            if here is not None and there is not None and here != there:
                message = _("this is not what {other} says; give it once").format(other=f"collective_ops.{name}")
                faults.append(((name,), message))
        if faults:
            raise PlacedValueError(*faults)
        return self
