"""What jobs that are over say of their hosts: factors for computing, traffic and memory, fitted robustly. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pydantic import BaseModel, ConfigDict, Field

from dttui.planning.cost.correction import Learned, MemoryCorrection, Provenance, TimeCorrection
from dttui.planning.cost.efficiency import Efficiency
from dttui.planning.cost.estimate import traffic_share
from dttui.planning.cost.hardware import GpuTable, Hardware, Interconnect
from dttui.planning.cost.layout import Layout
from dttui.planning.cost.memory import CONTEXT_BYTES, memory_on, memory_per_gpu
from dttui.planning.cost.shape import ModelShape
from dttui.planning.cost.step_time import step_time

USUAL_SCATTER = 0.1
"""Relative, of single jobs about a fit: what estimates miss other clusters' runs by (`bench/measured_runs`)."""
USUAL_WEIGHT = 2
"""So many jobs that scatter counts for beside those that were measured."""
MOST_SLOPE_ERROR = 0.5
"""Relative standard error of the difference of two factors above which they are not told apart, unless they differ by
much more; and what it is taken for where they are not."""
_SURE = 2.0
"""Standard errors that are much more."""
LEAST_APART = 3
"""Jobs from which on they are."""
_LEAST_FACTOR = 0.05
"""Of the whole step's, what computing or traffic may come down to: none takes no time."""
_ROUNDS = 3
"""What hides behind computing depends on both factors, so that their fit is made again with them."""
_OUTLIER = 3.0
"""Scaled median absolute deviations beyond which a job counts as one so far off."""
_TO_SIGMA = 1.4826
"""Standard deviations in a median absolute deviation, of a normal distribution."""
_LEAST_DEVIATION = 0.02
"""Relative; below it none is an outlier."""


class CostBasis(BaseModel):
    """All that an estimate of a job was made of but for constants, so that it can be made again."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: str
    """Name of the type of GPU, or of the CPU, that all ranks have."""
    gpus: int = Field(gt=0)
    gpus_per_node: int = Field(gt=0)
    intra: Interconnect
    """As `Hardware` has it, as the next two, without what was learned from jobs."""
    inter: Interconnect
    measured: Efficiency | None = None
    sizes: tuple[int, ...] = ()
    shape: ModelShape
    layout: Layout
    device: str = "gpu"
    """As the type has it."""

    @classmethod
    def of(cls, shape: ModelShape, layout: Layout, hardware: Hardware) -> CostBasis:
        """Return that of an estimate."""
        bare = hardware.uncorrected or hardware
        return cls(
            kind=bare.gpu.name,
            gpus=bare.gpus,
            gpus_per_node=bare.gpus_per_node,
            intra=bare.intra,
            inter=bare.inter,
            measured=bare.measured,
            sizes=bare.sizes,
            shape=shape,
            layout=layout,
            device=bare.gpu.device,
        )

    def hardware(self, table: GpuTable, learned: Learned | None = None) -> Hardware | None:
        """Return the hardware, corrected where something was learned; `None` where the type is not known any more."""
        gpu = next((item for item in table.gpus if item.name == self.kind), None)
        if gpu is None:
            return None
        found = Hardware(
            gpu,
            self.gpus,
            self.gpus_per_node,
            self.intra,
            self.inter,
            sizes=self.sizes,
            measured=self.measured,
            learned=learned,
        )
        return found.corrected_for(self.layout.precision)


class MeasuredRun(BaseModel):
    """What was measured of a job that is over, beside what it was estimated from."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    job: str
    """Its id."""
    ended_at: float
    """Unix time."""
    basis: CostBasis
    step_time_s: float | None = Field(default=None, gt=0)
    """Of a usual step; `None` where nobody could measure it."""
    memory_bytes: float | None = Field(default=None, gt=0)
    """The most that the fullest GPU, or rank on a CPU, has held; likewise."""


@dataclass(frozen=True)
class CheckedRun:
    """A measured job with its estimates: by data sheets, and with what was learned."""

    run: MeasuredRun
    step_time_before_s: float
    step_time_after_s: float
    memory_before_bytes: float
    memory_after_bytes: float


@dataclass(frozen=True)
class _Timed:
    """A job whose step time was measured."""

    run: MeasuredRun
    hardware: Hardware
    """Without what was learned."""
    step_time_s: float

    def split(self, compute: float, traffic: float) -> tuple[float, float]:
        """Return seconds of computing and of traffic by data sheets, as they add up with such factors."""
        gpus, basis = self.hardware, self.run.basis
        source = Provenance((), 0.0, 0.0)
        learned = Learned({basis.layout.precision: TimeCorrection(compute, traffic, True, 0.0, source)})
        hardware = basis.hardware(GpuTable(gpus=(gpus.gpu,)), learned) or gpus
        time = step_time(basis.shape, basis.layout, hardware)
        share = traffic_share(time)
        return time.value * (1 - share) / compute, time.value * share / traffic


def learn(runs: Iterable[MeasuredRun], table: GpuTable) -> dict[str, Learned]:
    """Return for each kind of host what its jobs say: factors of time by precision, and one of memory.

    Jobs whose type is not in the table, or whose precision is another, say nothing of a kind.
    """
    timed: defaultdict[tuple[str, str], list[_Timed]] = defaultdict(list)
    held: defaultdict[str, list[MeasuredRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.ended_at):
        basis = run.basis
        hardware = basis.hardware(table)
        if hardware is None:
            continue
        if run.step_time_s is not None:
            timed[basis.kind, basis.layout.precision].append(_Timed(run, hardware, run.step_time_s))
        if run.memory_bytes is not None:
            held[basis.kind].append(run)
    found = {}
    for kind in dict.fromkeys([*(kind for kind, _precision in timed), *held]):
        times = {precision: fit_time(jobs) for (name, precision), jobs in timed.items() if name == kind}
        found[kind] = Learned(times, fit_memory(held[kind]) if held[kind] else None)
    return found


def check(runs: Iterable[MeasuredRun], table: GpuTable, learned: Mapping[str, Learned]) -> list[CheckedRun]:
    """Return each job with both of its estimates, the oldest first; of types that are in the table."""
    found = []
    for run in sorted(runs, key=lambda run: run.ended_at):
        basis = run.basis
        before, after = basis.hardware(table), basis.hardware(table, learned.get(basis.kind))
        if before is None or after is None:
            continue
        times = [step_time(basis.shape, basis.layout, hardware).value for hardware in (before, after)]
        sizes = [memory_on(basis.shape, basis.layout, hardware).low for hardware in (before, after)]
        found.append(CheckedRun(run, *times, *sizes))
    return found


def fit_time(jobs: Sequence[_Timed]) -> TimeCorrection:
    """Fit factors of computing and traffic to jobs of one kind and precision.

    What a step takes over its estimate is a straight line over the share of traffic in the estimate: at 0 the factor
    of computing, at 1 that of traffic. The line is Theil and Sen's, the median of all slopes, which a few odd jobs do
    not move (Sen 1968). How far it is from 1, and from level, is taken the less the less sure it is: James and Stein's
    estimator, never beyond nothing (1961).
    """
    compute = traffic = 1.0
    line = _Line(0.0, 1.0, 0.0, USUAL_SCATTER, MOST_SLOPE_ERROR, are_apart=False)
    for _round in range(_ROUNDS):
        parts = [job.split(compute, traffic) for job in jobs]
        shares = [sent / (own + sent) for own, sent in parts]
        ratios = [job.step_time_s / (own + sent) for job, (own, sent) in zip(jobs, parts, strict=True)]
        line = _line(shares, ratios)
        compute, traffic = line.at(0.0), line.at(1.0)
        if not line.are_apart:
            break  # Both alike scale the whole step, and nothing changes any more.
    source, scatter = _source([job.run for job in jobs]), _of_another(line.scatter, len(jobs))
    return TimeCorrection(compute, traffic, line.are_apart, scatter, source, line.centre, line.slope_error)


def fit_memory(runs: Sequence[MeasuredRun]) -> MemoryCorrection:
    """Fit a factor, or an offset, of memory to jobs of one kind: whichever leaves less.

    Of a single job, what a context may take is an offset, and what is more a factor.
    """
    pairs = [
        (memory_per_gpu(run.basis.shape, run.basis.layout).low, run.memory_bytes)
        for run in runs
        if run.memory_bytes is not None
    ]
    lows, count = [low for low, _held in pairs], math.sqrt(len(pairs))
    factor = median(held / low for low, held in pairs)
    by_factor = [math.log(held / (low * factor)) for low, held in pairs]
    factor = math.exp(_shrunk(math.log(factor), _scatter(by_factor, 1) / count))
    offset = max(median(held - low for low, held in pairs), -CONTEXT_BYTES[0])
    by_offset = [math.log(held / (low + offset)) for low, held in pairs]
    offset = _shrunk(offset, _scatter(by_offset, 1) * median(lows) / count)
    is_offset = abs(offset) <= CONTEXT_BYTES[1] if len(pairs) == 1 else _total(by_offset) < _total(by_factor)
    left = _scatter(by_offset if is_offset else by_factor, 1)
    source, left = _source(runs), _of_another(left, len(pairs))
    return MemoryCorrection(1.0, offset, left, source) if is_offset else MemoryCorrection(factor, 0.0, left, source)


@dataclass(frozen=True)
class _Line:
    """Ratios over shares: level·(1 + slope·(share − centre))."""

    centre: float
    level: float
    slope: float
    scatter: float
    """Relative standard deviation of single jobs about it."""
    slope_error: float
    are_apart: bool

    def at(self, share: float) -> float:
        return self.level * (1 + self.slope * (share - self.centre))


def _line(shares: Sequence[float], ratios: Sequence[float]) -> _Line:
    count, centre = len(shares), sum(shares) / len(shares)
    level, slope, error, are_apart = median(ratios), 0.0, MOST_SLOPE_ERROR, False
    width = math.sqrt(sum((share - centre) ** 2 for share in shares))
    if count >= LEAST_APART and width > 0:
        rise = _theil_sen(shares, ratios)
        middle = median(ratio - rise * (share - centre) for share, ratio in zip(shares, ratios, strict=True))
        steep = rise / max(middle, _LEAST_FACTOR * level)
        scatter = _scatter(_residuals(shares, ratios, centre, steep), 2)
        own = scatter / width
        if own <= MOST_SLOPE_ERROR or abs(steep) > _SURE * own:
            are_apart, slope, error = True, _shrunk(steep, own), own
    # Neither factor comes below a part of the whole step's.
    room = 1 - _LEAST_FACTOR
    slope = max(min(slope, room / centre if centre > 0 else slope), -room / (1 - centre) if centre < 1 else slope)
    level = median(ratio / (1 + slope * (share - centre)) for share, ratio in zip(shares, ratios, strict=True))
    scatter = _scatter(_residuals(shares, ratios, centre, slope), 1 + are_apart)
    level = math.exp(_shrunk(math.log(level), scatter / math.sqrt(count)))
    return _Line(centre, level, slope, scatter, error, are_apart)


def _theil_sen(shares: Sequence[float], ratios: Sequence[float]) -> float:
    """Return the median of the slopes between all pairs, each weighted by how far apart it lies."""
    slopes = sorted(
        ((ratios[j] - ratios[i]) / (shares[j] - shares[i]), abs(shares[j] - shares[i]))
        for i in range(len(shares))
        for j in range(i)
        if shares[i] != shares[j]
    )
    half = sum(weight for _slope, weight in slopes) / 2
    passed = 0.0
    for slope, weight in slopes:
        passed += weight
        if passed >= half:
            return slope
    return 0.0


def _residuals(shares: Sequence[float], ratios: Sequence[float], centre: float, slope: float) -> list[float]:
    """Return how far ratios are from a line of that slope through their middle; of logarithms, where it is positive."""
    line = [max(1 + slope * (share - centre), _LEAST_FACTOR) for share in shares]
    logs = [math.log(ratio / own) for ratio, own in zip(ratios, line, strict=True)]
    middle = median(logs)
    return [value - middle for value in logs]


def _scatter(residuals: Sequence[float], fitted: int) -> float:
    """Return the standard deviation of single jobs, as usual before anything is measured; outliers count as the limit.

    Args:
        residuals: of the logarithms.
        fitted: numbers that were.
    """
    limit = _OUTLIER * max(_TO_SIGMA * median(map(abs, residuals)), _LEAST_DEVIATION)
    square = sum(min(abs(value), limit) ** 2 for value in residuals)
    freedom = max(len(residuals) - fitted, 0)
    return math.sqrt((USUAL_WEIGHT * USUAL_SCATTER**2 + square) / (USUAL_WEIGHT + freedom))


def _shrunk(value: float, error: float) -> float:
    """Return a value nearer to nothing, the nearer the larger its standard error."""
    return value * max(1 - (error / value) ** 2, 0.0) if value else 0.0


def _of_another(scatter: float, count: int) -> float:
    """Return the standard deviation of another job about a fit to so many: its own, and that of the fit."""
    return scatter * math.sqrt(1 + 1 / count)


def _total(residuals: Sequence[float]) -> float:
    return sum(map(abs, residuals))


def _source(runs: Sequence[MeasuredRun]) -> Provenance:
    times = [run.ended_at for run in runs]
    return Provenance(tuple(run.job for run in runs), min(times), max(times))
