"""The body of a request that creates a training task (`POST /api/v1/training-tasks`)."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from dttui.i18n import _
from dttui.spec.dialects.translation import Translated, Translation
from dttui.spec.document import validate
from dttui.spec.models import FrameworkName, Section
from dttui.spec.problems import PlacedValueError, did_you_mean, shown, with_hint
from dttui.spec.text import Label
from dttui.spec.yaml_source import YamlSource

_LAUNCH_MODE = "existing"


class ParallelDegrees(Section):
    """How the ranks are divided."""

    dataParallel: int | None = Field(default=None, gt=0)
    """Data parallel degree."""
    pipelineParallel: int | None = Field(default=None, gt=0)
    """Pipeline parallel degree."""
    tensorParallel: int | None = Field(default=None, gt=0)
    """Tensor parallel degree."""


class DistributedConfig(Section):
    """The nodes, and what starts the ranks on them."""

    enabled: bool | None = None
    """Whether there are several nodes; what the nodes are says it too."""
    nodeIds: tuple[Label, ...] = ()
    """Ids of environments."""
    masterNode: Label | None = None
    """One of them."""
    framework: FrameworkName | None = None
    """Framework."""
    strategy: ParallelDegrees | None = None
    """Degrees of parallelism."""

    @model_validator(mode="after")
    def _has_master(self) -> DistributedConfig:
        if self.masterNode and self.masterNode not in self.nodeIds:
            message = _("{node} is none of nodeIds").format(node=shown(self.masterNode))
            near = did_you_mean(self.masterNode, self.nodeIds)
            raise PlacedValueError((("masterNode",), with_hint(message, near)))
        return self


class TrainingTaskRequest(Section):
    """The request's body."""

    taskName: Label = Field(max_length=120)
    """Name of the job."""
    datasetId: Label | None = None
    """Dataset."""
    datasetVersionId: str | None = None
    """Version of it."""
    modelId: Label | None = None
    """Model."""
    launchMode: str = _LAUNCH_MODE
    """Whether environments that are there are used."""
    distributedConfig: DistributedConfig | None = None
    """Nodes and framework."""

    @field_validator("launchMode")
    @classmethod
    def _takes_existing(cls, mode: str) -> str:
        if mode != _LAUNCH_MODE:
            message = _('dttui makes no environments: launchMode can only be "{mode}", found {value}')
            raise ValueError(message.format(mode=_LAUNCH_MODE, value=shown(mode)))
        return mode

    @model_validator(mode="after")
    def _has_dataset(self) -> TrainingTaskRequest:
        if self.datasetVersionId is not None and self.datasetId is None:
            raise PlacedValueError((("datasetVersionId",), _("a version without datasetId")))
        return self


def translate(source: YamlSource) -> Translated:
    """Carry a request over. Raises DocumentError with every problem of it."""
    request = validate(source, TrainingTaskRequest)
    translation = Translation(source)
    translation.use(("launchMode",))
    translation.carry_all(
        (),
        {
            "taskName": "name",
            "datasetId": "dataset.id",
            "datasetVersionId": "dataset.version",
            "modelId": "model.name",
        },
    )
    config = request.distributedConfig
    if config is not None:
        _carry_config(translation, config)
    return translation.finish()


def _carry_config(translation: Translation, config: DistributedConfig) -> None:
    root = ("distributedConfig",)
    translation.carry_all(
        root,
        {
            "framework": "framework",
            "strategy.dataParallel": "strategy.data_parallel_size",
            "strategy.pipelineParallel": "strategy.pipeline_parallel_size",
            "strategy.tensorParallel": "strategy.tensor_parallel_size",
        },
    )
    degrees = config.strategy or ParallelDegrees()
    kinds = {
        "data_parallel": degrees.dataParallel,
        "model_parallel": degrees.tensorParallel,
        "pipeline_parallel": degrees.pipelineParallel,
    }
    used = [kind for kind, degree in kinds.items() if degree is not None and degree > 1]
    if used:
        translation.put(("strategy", "type"), used[0] if len(used) == 1 else "hybrid", (*root, "strategy"))
    translation.use((*root, "nodeIds"), (*root, "masterNode"), (*root, "enabled"))
    for index, node in enumerate(config.nodeIds):
        translation.carry((*root, "nodeIds", index), ("cluster", "nodes", index, "id"))
        if node == config.masterNode and node not in config.nodeIds[:index]:
            translation.carry((*root, "masterNode"), ("cluster", "nodes", index, "role"), "master")
    if config.enabled is False and len(config.nodeIds) > 1:
        message = _("not carried over: {count} nodes are always distributed").format(count=len(config.nodeIds))
        translation.note((*root, "enabled"), message, _("Leave one node in nodeIds."), is_warning=True)
