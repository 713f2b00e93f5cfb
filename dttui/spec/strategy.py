"""The section `strategy`: how the training is made parallel, in the seed DSL's words and in degrees."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from dttui.i18n import _
from dttui.spec.effects import ESTIMATED, FOR_SCRIPT, LAUNCHED
from dttui.spec.problems import PathKey, PlacedValueError
from dttui.spec.quantities import Number
from dttui.spec.section import MOST_COUNT, Section
from dttui.spec.text import Label


def _kind_of_shares(value: Any) -> str:
    return "a word" if isinstance(value, str) else "speeds"


Shares = Annotated[
    Annotated[Literal["equal", "by_speed"], Tag("a word")]
    | Annotated[dict[Label, Annotated[Number, Field(gt=0)]], Tag("speeds")],
    Discriminator(_kind_of_shares),
]
"""How a step's samples are shared out: by a word, or by the speeds of nodes; told apart first."""


class DataSharding(Section):
    """How data is shared out among the ranks: the script finds it in the file that DTTUI_CONFIG names."""

    method: str | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """`random`, `sequential`, …"""
    strategy: str | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Another spelling of `method`."""
    seed: int | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Seed of the shuffle."""
    drop_last: bool | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """Drop the last incomplete batch."""

    @model_validator(mode="after")
    def _agree(self) -> DataSharding:
        if self.method is not None and self.strategy is not None and self.method != self.strategy:
            message = _("this is not what {other} says; give it once").format(other="method")
            raise PlacedValueError((("strategy",), message))
        return self


class DataParallel(Section):
    """Settings of data parallelism."""

    batch_size: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Global batch size, samples a step, shared out among all ranks."""
    shares: Shares | None = Field(default=None, json_schema_extra=LAUNCHED)
    """How it is shared out: `equal`, the default; `by_speed`, by how fast each rank's GPU is, by its type or as an
    attempt before has measured; or a speed for one GPU of a node by its id, `{gpu2: 0.5}`, 1 for those that are not
    named. The script finds each rank's samples a step as `shares` in the file that DTTUI_CONFIG names."""
    num_workers: int | None = Field(default=None, ge=0, json_schema_extra=FOR_SCRIPT)
    """Loader processes a rank."""
    data_sharding: DataSharding | None = None
    """How data is shared out."""

    @property
    def has_equal_shares(self) -> bool:
        """Whether all ranks have as many samples, but for one."""
        return self.shares in (None, "equal")


class ModelSplitting(Section):
    """How a model is cut: the script finds it in the file that DTTUI_CONFIG names, and cuts the model itself."""

    method: str | None = Field(default=None, json_schema_extra=FOR_SCRIPT)
    """`layer_wise`, …"""
    layers_per_node: int | None = Field(default=None, gt=0, json_schema_extra=FOR_SCRIPT)
    """Layers on each node."""


class ModelParallel(Section):
    """Settings of model parallelism."""

    model_splitting: ModelSplitting | None = None
    """How the model is cut."""
    pipeline_stages: int | None = Field(default=None, gt=0)
    """Pipeline stages."""


class PipelineParallel(Section):
    """Settings of pipeline parallelism."""

    micro_batch_size: int | None = Field(default=None, gt=0, le=MOST_COUNT)
    """Samples that a rank computes at once; gradients are accumulated over so many micro-batches as make batch_size."""
    pipeline_stages: int | None = Field(default=None, gt=0)
    """Pipeline stages."""
    schedule: Literal["1F1B", "GPipe", "Interleaved", "ZB-H1", "ZB-H2", "ZB-V"] | None = None
    """Order of forward and backward passes; ZB-H1, ZB-H2 and ZB-V, which leave next to no bubbles, are the script's."""
    virtual_stages: int | None = Field(default=None, ge=1, json_schema_extra=ESTIMATED)
    """Chunks of layers on each rank, for the schedule Interleaved; the script finds it in the file of DTTUI_CONFIG."""


class Strategy(Section):
    """How the training is made parallel."""

    type: Literal["data_parallel", "model_parallel", "pipeline_parallel", "hybrid"] = "data_parallel"
    """Kind of parallelism."""
    data_parallel: DataParallel | None = None
    """Settings of data parallelism."""
    model_parallel: ModelParallel | None = None
    """Settings of model parallelism."""
    pipeline_parallel: PipelineParallel | None = None
    """Settings of pipeline parallelism."""
    data_parallel_size: int | None = Field(default=None, gt=0)
    """Data parallel degree: how many replicas of the model there are; by default what the other degrees leave."""
    tensor_parallel_size: int | None = Field(default=None, gt=0)
    """Tensor parallel degree: over how many ranks each layer is split; 1 by default. Best within a node."""
    pipeline_parallel_size: int | None = Field(default=None, gt=0)
    """Pipeline parallel degree: into how many stages the layers are cut; 1 by default."""
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    """ZeRO stage: what replicas share out instead of each having it all. 0, nothing; 1, optimizer states; 2, gradients
    too; 3, parameters too."""
    sequence_parallel: bool | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Whether tensor parallel ranks also share out what lies between their layers, along the sequence.

    The script finds it in the file that DTTUI_CONFIG names.
    """
    recomputation: Literal["none", "selective", "full"] | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Which activations are computed again in the backward pass instead of kept: those of attention, or all.

    The script finds it in the file that DTTUI_CONFIG names.
    """

    compiled: bool | None = Field(default=None, json_schema_extra=ESTIMATED)
    """Whether the script compiles the model (torch.compile); it finds this in the file that DTTUI_CONFIG names."""

    @property
    def pipeline_spellings(self) -> dict[PathKey, int]:
        """The pipeline degree by the keys, from here, that give it; they are to agree."""
        model, pipeline = self.model_parallel, self.pipeline_parallel
        spellings: dict[PathKey, int | None] = {
            ("pipeline_parallel_size",): self.pipeline_parallel_size,
            ("model_parallel", "pipeline_stages"): model.pipeline_stages if model else None,
            ("pipeline_parallel", "pipeline_stages"): pipeline.pipeline_stages if pipeline else None,
        }
        return {path: value for path, value in spellings.items() if value is not None}

    @property
    def pipeline_path(self) -> PathKey:
        """The key, from the job's top, that gives the pipeline degree, or would."""
        return ("strategy", *next(iter(self.pipeline_spellings), ("pipeline_parallel_size",)))

    @property
    def pipeline_degree(self) -> int | None:
        """The pipeline degree, from whichever of its places has it; `None` where none has."""
        return next(iter(self.pipeline_spellings.values()), None)
