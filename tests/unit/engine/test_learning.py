"""What a job that is over leaves for estimates to come, and what leaves nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from dtagent.protocol.events import JobState

from dttui import jobs, locations
from dttui.engine.learning import learn_from
from dttui.engine.measurement import compare_with_estimate
from dttui.fleet.measured_runs import measured_runs
from dttui.jobs import JobDirectory
from dttui.jobs.figures import GPU_MEMORY, SAMPLES, STEP_TIME, TOKENS, Figure
from dttui.jobs.outcome import AttemptOutcome, NodeEnd, NodeOutcome
from dttui.jobs.training_speed import TrainingSpeed
from dttui.planning.cost.hardware import GpuTable, GpuType
from dttui.planning.models import Bindings, BoundPlan, NodeBinding
from dttui.planning.planner import plan
from dttui.spec.models import Model
from tests.unit.seed_cluster import SEED, make_job

A, B = "pytorch-dev-env", "llm-training-env"
NOW = 1.7e9
MODEL = Model(parameters=1e9, seq_length=2048)
MEASURED: dict[str, float | None] = {STEP_TIME: 2.0, GPU_MEMORY: 40.0}
CPU = GpuType(
    name="A100", type="A100", device="cpu", memory_gib=64, fp32=0.1, memory_bandwidth=10, link="pcie", link_bandwidth=1
)


def bound(directory: JobDirectory, **fields: object) -> BoundPlan:
    made = plan(make_job(A, **{"model": MODEL, **fields}), SEED)
    node = NodeBinding(directory="/d", payload="/p", python="/py", interface=None, gpu_ids=(0, 1))
    return BoundPlan(plan=made, bindings=Bindings(job_id=directory.job_id, attempt=0, master_port=1, nodes={A: node}))


def ended(
    measured: Mapping[str, float | None] = MEASURED, state: JobState = JobState.SUCCEEDED, end: NodeEnd = NodeEnd.CLEAN
) -> AttemptOutcome:
    figures = {name: Figure(measured=value) for name, value in measured.items()}
    return AttemptOutcome(state=state, figures=figures, nodes={A: NodeOutcome(end=end)})


@pytest.fixture
def directory() -> JobDirectory:
    made = jobs.create("gpt")
    path = made.bound_plan(0)
    path.parent.mkdir(parents=True)
    path.write_text(bound(made).model_dump_json())
    return made


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.CANCELLED])
def test_a_job_that_is_over_leaves_its_step_time_memory_and_layout(directory: JobDirectory, state: JobState) -> None:
    assert learn_from(directory, ended(state=state), NOW) is None
    (run,) = measured_runs()
    assert (run.job, run.ended_at, run.step_time_s, run.memory_bytes) == (directory.job_id, NOW, 2.0, 40e9)
    basis = run.basis
    assert (basis.kind, basis.gpus, basis.layout.data, basis.layout.precision) == ("A100-80GB", 2, 2, "bf16")
    assert (basis.shape.parameters, basis.shape.seq_length) == (1e9, 2048)


@pytest.mark.parametrize(
    "outcome",
    [
        ended(state=JobState.FAILED),
        ended(end=NodeEnd.LOST),
        ended({}),
        ended({STEP_TIME: None, GPU_MEMORY: None}),
    ],
)
def test_what_failed_lost_a_host_or_measured_nothing_leaves_nothing(
    directory: JobDirectory, outcome: AttemptOutcome
) -> None:
    assert learn_from(directory, outcome, NOW) is None
    assert measured_runs() == ()


def test_steps_that_are_not_the_plans_are_not_taken_for_them(directory: JobDirectory) -> None:
    batch = 2
    for name, planned in ((TOKENS, batch * 2048), (SAMPLES, batch)):
        for times, told in ((1.0, 2.0), (4.0, None)):
            learn_from(directory, ended({**MEASURED, name: times * planned / 2.0}), NOW)
            (run,) = measured_runs()
            assert run.step_time_s == told, (name, times)
            assert run.memory_bytes == 40e9


def test_a_plan_without_an_estimate_or_with_several_types_of_gpus_leaves_nothing(directory: JobDirectory) -> None:
    directory.bound_plan(0).write_text(bound(directory, model=None).model_dump_json())
    assert learn_from(directory, ended(), NOW) is None
    directory.bound_plan(0).write_text("{")
    assert learn_from(directory, ended(), NOW) is None
    assert measured_runs() == ()


def test_where_what_is_kept_is_damaged_the_job_says_so_and_leaves_it(directory: JobDirectory) -> None:
    path = locations.measured_runs_file()
    path.write_text("{")
    finding = learn_from(directory, ended(), NOW)
    assert finding is not None
    assert (finding.code, finding.severity.value) == ("runs-file", "warning")
    assert str(path) in finding.message
    assert path.read_text() == "{"


def test_on_a_cpu_memory_is_that_of_the_fullest_process(directory: JobDirectory) -> None:
    simulated = SEED.model_copy(update={"environments": tuple(_simulated())})
    made = plan(make_job(A, model=MODEL), simulated, gpus=GpuTable(gpus=(CPU,)))
    assert made.cost_basis is not None
    assert (made.cost_basis.kind, made.cost_basis.device) == ("A100", "cpu")
    on_cpu = bound(directory).model_copy(update={"plan": made})
    peaks = {A: {0: 70_000}}
    figures = compare_with_estimate(on_cpu, TrainingSpeed(), peaks, [500, 700])
    assert figures[GPU_MEMORY].measured == pytest.approx(700 * 2**20 / 1e9)
    figures = compare_with_estimate(bound(directory), TrainingSpeed(), peaks, [500, 700])
    assert figures[GPU_MEMORY].measured == pytest.approx(70_000 * 2**20 / 1e9)


def _simulated() -> list[object]:
    found: list[object] = []
    for item in SEED.environments:
        gpu = item.resources.gpu
        assert gpu is not None
        resources = item.resources.model_copy(update={"gpu": gpu.model_copy(update={"simulated": True})})
        found.append(item.model_copy(update={"resources": resources}))
    return found
