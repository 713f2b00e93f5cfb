"""Who is in the way of a job: the one rule of the screen and of the preflight."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from dtagent.protocol.telemetry import GpuHold, GpuProcess, GpuSample, HostSample, RankSample

from dttui.compose.draft import preview_draft
from dttui.fleet.live import EnvironmentStatus
from dttui.fleet.states import EnvironmentState
from dttui.i18n import Message, retell, set_language, speaking
from dttui.inventory.models import GpuResources, Inventory, Resources
from dttui.planning.compose_state import ComposeState
from dttui.planning.models import Finding, Severity
from dttui.planning.planner import plan
from dttui.preflight.occupation import check_room
from dttui.preflight.room import judge_gpus
from dttui.rpc.sample_rows import WholeSample
from dttui.spec.models import GpuRequest, Node, NodeResources
from dttui.tui.compose_lines import readiness
from dttui.words import moment
from tests.tui.catalogue import compile_catalogues
from tests.unit.seed_cluster import environment, host_facts, make_job

REAL = environment("gpu1", 4)
SIMULATED = environment("sim", resources=Resources(gpu=GpuResources(count=4, type="A100", simulated=True)))
INVENTORY = Inventory(environments=(REAL, SIMULATED))


def node(name: str, gpus: int) -> Node:
    return Node(id=name, resources=NodeResources(gpu=GpuRequest(count=gpus)))


def gpu(index: int, *processes: GpuProcess, error: str | None = None) -> GpuSample:
    return GpuSample(index, processes=list(processes), error=error)


def found(name: str, gpus: int, sample: HostSample) -> list[Finding]:
    return check_room(plan(make_job(node(name, gpus)), INVENTORY, {"gpu1": host_facts(4)}), INVENTORY, {name: sample})


def test_a_host_that_does_nothing_has_room() -> None:
    assert found("gpu1", 4, HostSample(1, 0.0, 5.0, 0.1, gpus=[gpu(index) for index in range(4)])) == []


def test_of_a_node_that_names_its_gpus_those_alone_must_be_free() -> None:
    job = make_job(Node(id="gpu1", resources=NodeResources(gpu=GpuRequest(ids=(1, 3)))))
    made = plan(job, INVENTORY, {"gpu1": host_facts(4)})
    sample = HostSample(1, 0.0, gpus=[gpu(0, GpuProcess(4711, "li")), gpu(1), gpu(2, GpuProcess(4712, "li")), gpu(3)])
    assert [item.code for item in check_room(made, INVENTORY, {"gpu1": sample})] == ["host-busy"]
    assert judge_gpus(made, INVENTORY, made.nodes[0], sample).text == "2 of 2 free"
    taken = replace(sample, gpus=[*sample.gpus[:3], gpu(3, GpuProcess(99, "ann"))])
    (finding,) = check_room(made, INVENTORY, {"gpu1": taken})
    assert (finding.code, finding.severity) == ("gpus-taken", Severity.ERROR)
    assert finding.message == "gpu1: the job wants GPU 1,3 there, and not all are free: GPU 3: ann (pid 99)"
    assert judge_gpus(made, INVENTORY, made.nodes[0], taken).text == "1 of 2 free"


def test_gpus_that_others_hold_are_an_error_that_names_them() -> None:
    sample = HostSample(
        1,
        0.0,
        gpus=[gpu(0, GpuProcess(4711, "li")), gpu(1, GpuProcess(99)), gpu(2), gpu(3, error="GPU is lost")],
        ranks={"other-1": [RankSample(0, 99)]},
    )
    (finding,) = found("gpu1", 2, sample)
    assert (finding.code, finding.severity, finding.subject) == ("gpus-taken", Severity.ERROR, "gpu1")
    assert finding.message == (
        "gpu1 has 1 free GPU and the job uses 2 there: GPU 0: li (pid 4711), GPU 1: job other-1, GPU 3: GPU is lost"
    )
    assert finding.hint


def test_gpus_that_are_set_aside_are_taken_though_nothing_runs_on_them_and_told_with_whose_and_until_when(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    holds = [
        GpuHold("li", "bert-7", [0, 1], since=100.0, until=100.0 + 3 * 3600),
        GpuHold("wang", None, [2], since=100.0 - 3600, until=50.0),
    ]
    process = GpuProcess(7, "li")
    sample = HostSample(1, 100.0, gpus=[gpu(0, process), gpu(1), gpu(2), gpu(3)], holds=holds)
    (finding,) = found("gpu1", 2, sample)
    assert finding.message == (
        "gpu1 has 1 free GPU and the job uses 2 there: "
        f"GPU 0, 1: job bert-7 of li since {moment(now)}, until {moment(now + 3 * 3600)}, "
        f"GPU 2: wang since {moment(now - 3600)}, overdue since {moment(now - 50)}"
    )


def test_simulated_gpus_are_taken_by_what_was_set_aside_and_by_ranks_of_jobs_that_have_not_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    holds = [GpuHold("me", "a-1", simulated=2, since=0.0)]
    sample = HostSample(1, 0.0, ranks={"a-1": [], "b-2": [RankSample(0, 1)]}, holds=holds)
    (finding,) = found("sim", 2, sample)
    since = moment(now)
    assert finding.message == f"sim has 1 free GPU and the job uses 2 there: job a-1 since {since}, job b-2"


def test_who_is_in_the_way_is_told_again_in_another_language_and_no_part_of_it_is_left_behind() -> None:
    sample = HostSample(1, 0.0, gpus=[gpu(0, GpuProcess(9), GpuProcess(7, "li"))], ranks={"j-1": [RankSample(0, 9)]})
    (finding,) = found("gpu1", 4, sample)
    assert isinstance(finding.message, Message)
    recipe = finding.message.recipe
    compile_catalogues()
    set_language("zh")
    try:
        assert retell(recipe) == found("gpu1", 4, sample)[0].message
    finally:
        set_language("en")


def test_a_host_in_use_with_enough_free_gpus_is_a_warning() -> None:
    sample = HostSample(1, 0.0, gpus=[gpu(0, GpuProcess(4711, "li")), gpu(1), gpu(2), gpu(3)])
    (finding,) = found("gpu1", 3, sample)
    assert (finding.code, finding.severity) == ("host-busy", Severity.WARNING)
    assert "li (pid 4711)" in finding.message


def test_busy_cpus_are_a_warning_only_where_processes_wait_for_them() -> None:
    gpus = [gpu(index) for index in range(4)]
    assert found("gpu1", 1, HostSample(1, 0.0, 100.0, 3.0, gpus=gpus, cpu_count=96)) == []
    assert found("gpu1", 1, HostSample(1, 0.0, 10.0, 300.0, gpus=gpus, cpu_count=96)) == []
    (finding,) = found("gpu1", 1, HostSample(1, 0.0, 99.0, 300.0, gpus=gpus, cpu_count=96))
    assert (finding.code, finding.severity) == ("host-busy", Severity.WARNING)
    assert "load 300.0 on 96 CPUs" in finding.message


def test_a_driver_that_does_not_say_who_uses_its_gpus_is_not_complained_of() -> None:
    assert found("gpu1", 4, HostSample(1, 0.0)) == []
    assert found("gpu1", 4, HostSample(1, 0.0, gpus=[GpuSample(index) for index in range(4)])) == []


def test_ranks_of_other_jobs_hold_simulated_gpus() -> None:
    sample = HostSample(1, 0.0, ranks={"a-1": [RankSample(0, 1), RankSample(1, 2)], "b-2": []})
    (finding,) = found("sim", 2, sample)
    assert finding.message == "sim has 1 free GPU and the job uses 2 there: job a-1, job b-2"
    (finding,) = found("sim", 1, sample)
    assert finding.code == "host-busy"


def test_a_rank_that_uses_all_of_its_node_holds_so_many_simulated_gpus() -> None:
    sample = HostSample(1, 0.0, ranks={"tf-1": [RankSample(0, 1, simulated_gpus=3)]})
    (finding,) = found("sim", 2, sample)
    assert finding.message == "sim has 1 free GPU and the job uses 2 there: job tf-1"


def test_a_draft_is_only_warned_of_what_a_launch_would_be_refused_for() -> None:
    sample = HostSample(1, 0.0, ranks={"a-1": [RankSample(0, 1), RankSample(1, 2)]})
    busy = EnvironmentStatus(SIMULATED, EnvironmentState.BUSY, "a-1", facts=host_facts(), reading=WholeSample(sample))
    preview = preview_draft(ComposeState(selected=("sim",), master="sim"), INVENTORY, {"sim": busy}, Path())
    (finding,) = [item for item in preview.findings if item.subject == "sim"]
    assert (finding.code, finding.severity) == ("gpus-taken", Severity.WARNING)
    assert preview.refused_now == ("sim",)


@pytest.mark.parametrize(("language", "word"), [("en", "refused"), ("zh", "拒绝")])
def test_a_draft_that_would_be_refused_now_is_not_called_ready(language: str, word: str) -> None:
    with speaking(language):
        told = {
            refused: readiness(
                (),
                has_errors=False,
                is_planned=True,
                was_refused=False,
                ticked=1,
                unusable=0,
                refused=refused,
                estimate=None,
            ).plain
            for refused in ((), ("sim",))
        }
    assert told[()].startswith("✓")
    assert told["sim",].startswith("⚠")
    assert "sim" in told["sim",]
    assert word in told["sim",]


def test_a_draft_tells_once_and_last_of_hosts_that_are_merely_busy() -> None:
    names = ("a", "b", "c")
    hosts = [environment(name, zone=f"zone-{name}") for name in names]
    sample = HostSample(1, 0.0, 98.0, 99.0, cpu_count=96)
    facts = host_facts()
    statuses = {
        item.name: EnvironmentStatus(item, EnvironmentState.BUSY, "", facts=facts, reading=WholeSample(sample))
        for item in hosts
    }
    inventory = Inventory(environments=tuple(hosts))
    state = ComposeState(selected=names, master="a")
    said = preview_draft(state, inventory, statuses, Path()).findings
    warnings = [item for item in said if item.severity is Severity.WARNING]
    assert [item.code for item in warnings] == ["cross-zone", "host-busy"]
    assert warnings[1].message.startswith("on 3 nodes (a, b, c): in use: CPU 98%")
