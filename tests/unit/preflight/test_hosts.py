"""What facts, samples and answers of one host say before a job starts there, and how the board tells it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dtagent.protocol.facts import HostFacts, UserLimits
from dtagent.protocol.probes import PathsReply, PathState
from dtagent.protocol.rdma import RdmaPort
from dtagent.protocol.telemetry import GpuProcess, GpuSample, HostSample

from dttui.cli.arguments import parse_arguments
from dttui.cli.conflicts import refuse_conflicts
from dttui.cli.preflight_text import board_lines, result_lines
from dttui.errors import UsageError
from dttui.i18n import msg
from dttui.jobs.board import Board, Drift, Judgement, check_ignored
from dttui.jobs.checks import Cell, Check, CheckStatus, cell_text, cells_from_data, cells_to_data
from dttui.planning.models import PlannedNode
from dttui.preflight import hosts
from dttui.spec.findings import error, warning
from tests.unit.seed_cluster import host_facts

NODE = PlannedNode(
    name="gpu1", node_rank=0, address="10.0.0.1", python="/py", slots=2, cuda_slots=2, simulated=False, ranks=(0, 1),
    required_paths=("/srv/data",),
)  # fmt: skip
FACTS = host_facts(2, limits=UserLimits(65536, None, None), shm_total_mib=64_000)
ROOT = PathState("/var/tmp/dtagent-0", True, True, True, 70_000, 100_000)

TOLD: dict[str, Any] = {"ecc_uncorrected": 0, "xid_count": 0, "throttle_reasons": []}
"""A GPU of which the driver tells all kinds of error, and none has happened."""


def found(judgement: Judgement) -> list[tuple[str, str]]:
    return [(item.code, item.severity.value) for item in judgement.findings]


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        ({"throttle_reasons": []}, []),
        ({"throttle_reasons": ["power cap"]}, []),
        ({"throttle_reasons": ["hardware thermal slowdown"]}, [("gpu-throttled", "warning")]),
        ({"ecc_uncorrected": 3}, [("gpu-ecc", "warning")]),
        ({"xid_count": 2, "xid_last": 79}, [("gpu-xid", "warning")]),
        ({"memory_repair_pending": True, "memory_repair_failed": False}, [("gpu-memory", "warning")]),
        ({"memory_repair_pending": True, "memory_repair_failed": True}, [("gpu-memory", "error")]),
        ({"recovery_action": "none"}, []),
        ({"recovery_action": "GPU reset"}, [("gpu-recovery", "error")]),
        ({"error": "GPU is lost"}, [("gpu-error", "error")]),
    ],
)
def test_the_health_of_a_gpu(gpu: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    judged = hosts.judge_health(NODE, FACTS, HostSample(1, 0.0, gpus=[GpuSample(0, **{**TOLD, **gpu})]))
    assert found(judged) == expected
    assert judged.status is CheckStatus.OK


def test_of_gpus_with_the_same_trouble_one_thing_is_said_and_nothing_of_those_that_the_job_does_not_get() -> None:
    def messages(slots: int, *gpus: GpuSample) -> list[str]:
        node = NODE.model_copy(update={"slots": slots, "cuda_slots": slots})
        return [item.message for item in hosts.judge_health(node, FACTS, HostSample(1, 0.0, gpus=list(gpus))).findings]

    worn = [
        GpuSample(index, ecc_uncorrected=index, xid_count=1, xid_last=63 if index < 4 else 31) for index in range(8)
    ]
    assert messages(8, *worn) == [
        "gpu1: GPUs 0–3: the driver has reported Xid 63",
        "gpu1: GPUs 1–7: 28 uncorrected memory errors since the driver was loaded",
        "gpu1: GPUs 4–7: the driver has reported Xid 31",
    ]
    busy = replace(worn[1], processes=[GpuProcess(7, "li", 100)])
    lost = GpuSample(0, error="GPU is lost")
    assert messages(2, lost, busy, *worn[2:]) == [
        "gpu1: GPUs 2–3: 5 uncorrected memory errors since the driver was loaded",
        "gpu1: GPUs 2–3: the driver has reported Xid 63",
    ]
    assert messages(1, lost, busy)[0] == "gpu1: GPU 0: GPU is lost"
    assert messages(0, lost, busy) == []


@pytest.mark.parametrize(
    ("gpus", "status", "text"),
    [
        ([TOLD, TOLD], CheckStatus.OK, "no errors"),
        ([{}, {}], CheckStatus.UNKNOWN, "not told: ECC, Xid, throttling"),
        ([{"throttle_reasons": []}, {}], CheckStatus.UNKNOWN, "not told: ECC, Xid, throttling of GPU 1"),
        ([TOLD, {**TOLD, "ecc_uncorrected": None}], CheckStatus.UNKNOWN, "not told: ECC of GPU 1"),
        ([{**TOLD, "xid_count": None}] * 2, CheckStatus.UNKNOWN, "not told: Xid"),
        ([{**TOLD, "xid_count": None}, {**TOLD, "ecc_uncorrected": 4}], CheckStatus.UNKNOWN, "not told: Xid of GPU 0"),
    ],
)
def test_no_gpu_is_called_healthy_of_which_a_kind_of_error_is_not_told(
    gpus: list[dict[str, Any]], status: CheckStatus, text: str
) -> None:
    sample = HostSample(1, 0.0, gpus=[GpuSample(index, **gpu) for index, gpu in enumerate(gpus)])
    judged = hosts.judge_health(NODE, FACTS, sample)
    assert (judged.status, judged.text) == (status, text)


def test_health_that_no_driver_tells_is_unknown_and_that_of_no_gpus_is_none() -> None:
    assert hosts.judge_health(NODE, FACTS, HostSample(1, 0.0, gpus=[GpuSample(0)])).status is CheckStatus.UNKNOWN
    assert hosts.judge_health(NODE, FACTS, HostSample(1, 0.0)).status is CheckStatus.UNKNOWN
    assert hosts.judge_health(NODE, host_facts(0), HostSample(1, 0.0)).status is CheckStatus.NONE


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"limits": UserLimits(1024, 65536, 4096)}, []),
        ({"limits": UserLimits(200, None, None)}, [("nofile-low", "warning")]),
        ({"limits": UserLimits(None, None, 100)}, [("nproc-low", "warning")]),
        ({"limits": UserLimits(None, None, 100), "user": "root"}, []),
        ({"limits": UserLimits(None, 64, None)}, []),
        (
            {"limits": UserLimits(None, 64, None), "rdma": [RdmaPort("mlx5_0", 1, "ACTIVE")]},
            [("memlock-low", "warning")],
        ),
        ({"logout_kills": True}, [("logout-kills", "error")]),
    ],
)
def test_what_a_host_lets_a_job_have(facts: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert found(hosts.judge_limits(NODE, replace(FACTS, **facts), 2)) == expected


def test_a_large_job_needs_more_open_files() -> None:
    limited = replace(FACTS, limits=UserLimits(1024, None, None))
    assert found(hosts.judge_limits(NODE, limited, 128)) == []
    assert found(hosts.judge_limits(NODE, limited, 512)) == [("nofile-low", "warning")]


def room(facts: HostFacts = FACTS, root: PathState | None = ROOT, *paths: PathState) -> Judgement:
    return hosts.judge_room(NODE, facts, PathsReply(list(paths), root), "/ckpt")


def test_room_on_disks_and_in_shared_memory() -> None:
    assert found(room()) == []
    assert room().text == "disk 73 GB · shm 67 GB"
    assert found(room(replace(FACTS, shm_total_mib=64))) == [("shm-small", "warning")]
    assert found(room(FACTS, replace(ROOT, free_mib=500))) == [("disk-low", "warning")]
    assert found(room(FACTS, replace(ROOT, free_mib=10))) == [("disk-low", "error")]
    assert found(room(FACTS, ROOT, PathState("/ckpt", True, True, False, 70_000))) == [
        ("checkpoint-unwritable", "error")
    ]
    assert found(room(FACTS, ROOT, PathState("/ckpt", False, None, True, 500))) == [("disk-low", "warning")]
    assert room(replace(FACTS, shm_total_mib=None), None).status is CheckStatus.UNKNOWN


def test_room_for_the_checkpoints_that_stay() -> None:
    reply = PathsReply([PathState("/ckpt", True, True, True, 70_000)], ROOT)
    for wanted_gib, expected in ((60, []), (69, [("checkpoint-room", "warning")])):
        assert found(hosts.judge_room(NODE, FACTS, reply, "/ckpt", wanted_gib << 30)) == expected


def test_room_that_the_job_asks_for_where_its_data_lies() -> None:
    reply = PathsReply([PathState("/data", True, True, True, 70_000)], ROOT)
    for wanted_gib, expected in ((60, []), (69, [("storage-room", "error")])):
        node = NODE.model_copy(update={"required_paths": ("/data",), "required_room": {"/data": wanted_gib << 30}})
        assert found(hosts.judge_room(node, FACTS, reply, None)) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (PathState("/srv/data", True), []),
        (PathState("/srv/data", False), [("path-missing", "error")]),
        (PathState("/srv/data", None, detail="no answer within 5 s"), [("path-unknown", "warning")]),
    ],
)
def test_what_must_be_at_its_path(state: PathState, expected: list[tuple[str, str]]) -> None:
    assert found(hosts.judge_paths(NODE, PathsReply([state]))) == expected


@pytest.mark.parametrize(
    ("offset_s", "round_trip_s", "others", "is_off"),
    [(0.002, 0.001, (), False), (-30.0, 0.01, (0.0, 0.0), True), (1.5, 2.0, (), False), (120.0, 0.01, (120.0,), False)],
)
def test_a_clock_is_off_where_most_say_so_beyond_what_the_measurement_leaves_open(
    offset_s: float, round_trip_s: float, others: tuple[float, ...], is_off: bool
) -> None:
    judged = hosts.judge_clock("gpu1", offset_s, round_trip_s, [offset_s, *others])
    assert bool(judged.findings) is is_off


def test_what_a_host_says_cannot_drive_the_terminal() -> None:
    hostile = "\x1b]52;c;eA==\x07\x1b[2J[/red]"
    board = Board(("gpu1",))
    judged = hosts.judge_health(
        NODE, FACTS, HostSample(1, 0.0, gpus=[GpuSample(0, error=hostile, recovery_action=hostile)])
    )
    board.put("gpu1", {Check.HEALTH: judged, Check.AGENT: hosts.judge_agent("gpu1", hostile)}, 0.1)
    board.put("gpu1", {Check.MASTER: Judgement(hostile)}, 0.1)
    told = "".join([*board_lines(board), *result_lines(board, 1.0)])
    assert "\x1b" not in told
    assert "\x07" not in told


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(CheckStatus.PENDING, seconds=3.0), "·"),
        (Cell(CheckStatus.NONE), "–"),
        (Cell(CheckStatus.OK, seconds=0.004), "✓ .00"),
        (Cell(CheckStatus.OK, seconds=0.21), "✓ .21"),
        (Cell(CheckStatus.WARNING, seconds=0.997), "⚠ 1.0"),
        (Cell(CheckStatus.UNKNOWN, seconds=9.96), "? 10"),
        (Cell(CheckStatus.ERROR, seconds=20.4), "✗ 20"),
    ],
)
def test_a_cell_is_a_symbol_and_a_time_in_five_places(cell: Cell, text: str) -> None:
    assert cell_text(cell) == text
    assert len(text) <= 5


def test_the_worst_finding_is_the_verdict_and_the_first_time_stays() -> None:
    changes: list[dict[Check, Cell]] = []
    board = Board(("a",), on_change=lambda _name, cells: changes.append(dict(cells)))
    board.put("a", {Check.PATHS: Judgement("1 of 2", (warning("w", "a", "x"), error("e", "a", "y")))}, 0.5)
    board.put("a", {Check.PATHS: Judgement("1 of 2", (warning("w", "a", "x"), error("e", "a", "y")))}, 9.0)
    board.put("a", {Check.PATHS: Judgement("2 of 2")}, 9.0)
    assert [cells[Check.PATHS] for cells in changes] == [
        Cell(CheckStatus.ERROR, "1 of 2", 0.5),
        Cell(CheckStatus.OK, "2 of 2", 0.5),
    ]
    assert board.findings == ()


def test_cells_survive_the_way_through_an_event_and_nonsense_does_not() -> None:
    cells = {Check.GPUS: Cell(CheckStatus.WARNING, "1 of 2 free", 0.25), Check.CLOCK: Cell(CheckStatus.PENDING)}
    assert cells_from_data(cells_to_data(cells)) == cells
    nonsense = {"gpus": {"verdict": "splendid"}, "moon": {"verdict": "ok"}, "clock": 7}
    assert cells_from_data(nonsense) == {}
    assert cells_from_data(None) == {}


def test_only_errors_that_a_person_may_know_better_about_can_be_ignored() -> None:
    assert check_ignored(["path-missing", "disk-low", "path-missing"]) == ("path-missing", "disk-low")
    for code in ("unreachable", "python-missing", "no-such-code"):
        with pytest.raises(UsageError, match=code):
            check_ignored([code])


@pytest.mark.parametrize("verb", [["--apply", "job.yaml"], ["apply", "job.yaml"], ["preflight", "job.yaml"]])
def test_codes_to_ignore_are_given_one_by_one(verb: list[str]) -> None:
    given = ["--ignore", "disk-low", "--ignore", "path-missing"]
    assert parse_arguments([*verb, *given]).ignore == ["disk-low", "path-missing"]
    assert not parse_arguments(verb).ignore
    with pytest.raises(UsageError, match="--ignore"):
        refuse_conflicts(parse_arguments([*given, "ps"]))


@pytest.mark.parametrize("verb", [["validate", "job.yaml"], ["fmt", "job.yaml"], ["schema"]])
def test_who_reads_no_inventory_takes_none(verb: list[str]) -> None:
    refuse_conflicts(parse_arguments(verb))
    with pytest.raises(UsageError, match="reads no inventory"):
        refuse_conflicts(parse_arguments([*verb, "--inventory", "hosts.yaml"]))


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_the_board_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    board = Board(("pytorch-development-environment", "训练环境一号", "c"))
    for name in board.names:
        board.put(name, {check: Judgement() for check in Check}, 12.3)
    lines = board_lines(board)
    assert len(lines) == 4
    assert all(len(line) + sum(letter > "\u2fff" for letter in line) <= columns for line in lines)
    assert all(line.count("✓ 12") == len(Check) for line in lines[1:])


def test_the_result_shows_who_differs_and_sums_up() -> None:
    board = Board(("a", "b"))
    board.drift = (Drift("torch", "2.13.0", ("a",), {"2.12.1": ("b",)}),)
    board.say([error("x", "a", "broken", "Mend it.")])
    told = list(result_lines(board, 1.25))
    assert "torch    2.13.0 (1)  2.12.1: b" in told
    assert "✗ x: broken → Mend it." in told
    assert told[-1] == "2 nodes checked in 1.2 s: 1 error, 0 warnings"


def test_the_sum_counts_the_lines_above_it() -> None:
    board = Board(("a", "b"))
    said = {name: msg("{host}: {reason}", host=name, reason="little room") for name in board.names}
    board.say([warning("disk-low", name, message) for name, message in said.items()])
    *told, total = result_lines(board, 1.25)
    assert sum(line.startswith("⚠") for line in told) == 1
    assert total.endswith("0 errors, 1 warning")
