"""What is asked about a job that is being composed, and what there is to say. Values alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dttui.planning.cost.assumptions import HardwareClaim, ModelClaim
from dttui.planning.cost.calibration import CheckedRun
from dttui.planning.cost.correction import Learned
from dttui.planning.cost.estimate import Estimate
from dttui.planning.cost.layout_changes import LayoutChange
from dttui.planning.cost.layout_search import Wish
from dttui.planning.cost.recommend import JobAdvice
from dttui.planning.cost_text import Shrinking
from dttui.planning.costing import Costed
from dttui.planning.models import Plan
from dttui.spec.findings import Finding
from dttui.spec.models import Job
from dttui.spec.problems import Problem


@dataclass(frozen=True)
class CostQuestion:
    """What a person gives beside a job, or instead of one."""

    model: ModelClaim
    """Of no job."""
    hardware: HardwareClaim | None
    """Of no job; `None` with one."""
    layout: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a `Layout` that are given."""
    wish: Wish = field(default_factory=Wish)
    """What a recommendation is to keep to."""
    global_batch: int | None = None
    tokens: float | None = None
    """To train on in all; `None` for a usual number."""


@dataclass(frozen=True)
class CostAnswer:
    """What training costs, and what there is to say of that."""

    estimate: Estimate
    findings: Sequence[Finding]
    remedies: Sequence[LayoutChange] = ()
    """What would shrink the largest parts of it."""
    shrinking: Shrinking = field(default_factory=dict)
    """The same in words."""


@dataclass(frozen=True)
class CalibrationAnswer:
    """What estimates have learned from jobs that are over."""

    kinds: Mapping[str, Learned]
    """By name of the type of GPU, or of the CPU."""
    jobs: Sequence[CheckedRun]
    """Those that it was learned from, the oldest first."""
    unknown_kinds: Sequence[str]
    """Of which there are jobs, and no type any more."""


@dataclass(frozen=True)
class AdviceAnswer(JobAdvice):
    """The fastest layouts, and what they were searched for: of a job, or of numbers without one."""

    edits: Sequence[dict[str, Any]] = ()
    """What to write into the job for each candidate; none without a job."""
    framework_problem: str | None = None
    """What the job's framework lacks for the first."""


@dataclass(frozen=True)
class DraftPreview:
    """What a draft would do."""

    plan: Plan | None
    """`None` where a field holds what no job can."""
    findings: tuple[Finding, ...]
    """What there is to say about it, without what is merely not filled in yet.

    Errors first, then warnings: hosts that cannot be used, the job, hosts that others use, too.
    """
    refused_now: tuple[str, ...] = ()
    """Hosts, or keys of the job, for which a launch would be refused now, though that may be over by then."""


@dataclass(frozen=True)
class NoEstimate:
    """Why there is no estimate."""

    reason: str
    """A whole sentence."""
    remedy: str = ""
    lacks_model: bool = False
    """Whether it is the size of the model that is not known."""


@dataclass(frozen=True)
class Degrees:
    """How the ranks of a job are shared out."""

    data: int
    tensor: int
    pipeline: int
    zero_stage: int | None
    """`None` where the job says nothing of it."""


@dataclass(frozen=True)
class DraftCost:
    """What a draft costs: an estimate, or else why there is none. Neither where nothing is ticked."""

    estimate: Estimate | None = None
    absence: NoEstimate | None = None
    degrees: Degrees | None = None
    """`None` where those of the job do not go with its ranks."""
    costed: Costed | None = None
    """For a plan of the same draft, which need not read it again."""


@dataclass(frozen=True)
class Offer(JobAdvice):
    """Layouts that a person may choose from, and what they were searched for."""

    current: DraftCost = field(kw_only=True)
    """What the job has now."""


@dataclass(frozen=True)
class LineChange:
    """One line of a difference."""

    sign: Literal["+", "-", " ", "@"]
    """New, gone, as it was, or some that are left out because nothing in them differs."""
    text: str


@dataclass(frozen=True)
class ChangedPart:
    """What differs in one command, environment or file, or in the job itself."""

    title: str
    lines: tuple[LineChange, ...]


@dataclass(frozen=True)
class LaunchChanges:
    """What a draft would do otherwise than the last launch of a job of its name."""

    job_id: str
    started_at: float | None
    """Unix time."""
    parts: tuple[ChangedPart, ...]
    left_out: int = 0
    """How many further parts differ."""
    trouble: str = ""
    """Why something could not be compared; empty where all was."""


@dataclass(frozen=True)
class ReadText:
    """What a text is, that is to be a job file."""

    job: Job | None
    """`None` where it is none."""
    problems: tuple[Problem, ...] = ()
    """What is wrong, each with its place."""
    remarks: tuple[Finding, ...] = ()
    """What there is to say besides."""
