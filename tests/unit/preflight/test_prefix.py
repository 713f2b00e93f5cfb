"""What is asked and told of an interpreter behind `run.prefix`, which may be another one than the host's."""

from __future__ import annotations

from typing import Any

import pytest
from dtagent.protocol.rpc import to_wire

from dttui.frameworks.parts.prefix import leads_elsewhere
from dttui.jobs.checks import Check
from dttui.planning.planner import plan
from dttui.preflight.framework_answers import request_for
from dttui.preflight.software import facts_request
from dttui.spec.models import Run
from tests.unit.preflight.test_preflight import FACTS, INVENTORY, NAMES, TORCH, Agent, Checking, codes, statuses
from tests.unit.seed_cluster import make_job

CONDA = ("conda", "run", "-n", "train")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", False),
        ("numactl --cpunodebind=0 --membind 0", False),
        ("taskset -c 0-3,8", False),
        ("env OMP_NUM_THREADS=4 nice -n 10", False),
        ("/usr/bin/timeout 10h", False),
        ("nsys profile -o report", False),
        ("nice strace -f", False),
        ("conda run -n train", True),
        ("nice -n 10 apptainer exec x.sif", True),
        ("./within", True),
        ("/usr/bin/env A=1 srun --overlap", True),
        ("taskset 0xff", False),
        ("taskset ff numactl -N all", False),
        ("env -u FOO -C /tmp", False),
        ("stdbuf -o L -eL", False),
        ("ionice -c best-effort -n 7", False),
        ("timeout -s KILL -k 5s 10h", False),
        ("setarch x86_64 -R", False),
        ("time -f %e -o ./times", False),
        ("perf record -g -o rep", False),
        ("nsys profile apptainer exec x.sif", True),
        ("nsys profile -t cuda -o rep --stats=true ./within", True),
        ("strace -f apptainer exec x.sif", True),
        ("gdb -batch -ex run --args ./within", True),
        ("valgrind conda run -n train", True),
        ("env -u FOO apptainer exec x.sif", True),
        ("apptainer exec x.sif nsys profile -o rep", True),
    ],
)
def test_a_prefix_leads_to_another_interpreter_unless_it_is_known_not_to(words: str, expected: bool) -> None:
    assert leads_elsewhere(words.split()) is expected


def job_with(prefix: tuple[str, ...], **run: Any) -> Any:
    return make_job(*NAMES, run=Run(script="train.py", workdir="/srv", prefix=prefix, **run))


class Behind(Agent):
    """A host that tells what is behind the prefix; `told` are fields of that, `None` for an agent that cannot look."""

    def __init__(self, told: dict[str, Any] | None) -> None:
        self.requests: list[dict[str, Any]] = []

        def facts(params: dict[str, Any]) -> dict[str, Any]:
            self.requests.append(params)
            own = {} if told is None or not params["prefix"] else {"prefix": params["prefix"], **told}
            return {**to_wire(FACTS), "pythons": [{**to_wire(TORCH), **own}]}

        super().__init__(facts=facts)


async def test_a_host_is_asked_as_the_job_will_start_and_its_answer_counts() -> None:
    job = job_with(CONDA, env={"CONDA_ROOT": "/opt/conda", "SCRATCH": "${DIRECTORY}/scratch"})
    agents = {name: Behind({"packages": {"torch": "2.14.0"}}) for name in NAMES}
    board = await Checking(job, INVENTORY, **agents).run()
    assert codes(board) == []
    assert board.rows["b"][Check.SOFTWARE].text.startswith("Python 3.11.7 · torch 2.14.0")
    (asked,) = agents["a"].requests
    assert (asked["pythons"], asked["prefix"], asked["cwd"]) == (["/py"], list(CONDA), "/srv")
    assert asked["env"] == {"CONDA_ROOT": "/opt/conda"}
    agents = {name: Behind({"packages": {}}) for name in NAMES}
    board = await Checking(job, INVENTORY, **agents).run()
    assert codes(board) == [("package-missing", name) for name in NAMES]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (None, "nothing is known of it"),
        ({"error": "/py exits with 255: no such image", "packages": {}}, "/py exits with 255: no such image"),
    ],
)
async def test_what_could_not_be_looked_at_behind_the_prefix_is_a_warning(
    told: dict[str, Any] | None, reason: str
) -> None:
    board = await Checking(job_with(CONDA), INVENTORY, a=Behind(told)).run()
    (found,) = (item for item in board.findings if item.subject == "a")
    assert (found.code, found.severity.value) == ("python-unknown", "warning")
    assert found.message == f"a: the interpreter behind run.prefix could not be looked at: {reason}"
    assert found.hint == "Try there: conda run -n train /py --version"
    assert statuses(board, Check.SOFTWARE)[0] == "unknown"
    board.raise_errors()


def test_a_prefix_that_only_a_start_fills_is_not_asked_about() -> None:
    made = plan(job_with(("run-in", "${DIRECTORY}/image")), INVENTORY)
    assert facts_request(made, made.nodes[0]).pythons == []


@pytest.mark.parametrize(
    "words", ["apptainer exec x.sif nsys profile -o rep", "/opt/bin/nsys profile apptainer exec x.sif"]
)
async def test_nothing_is_asked_where_a_program_looks_on_that_would_report_on_what_is_asked(words: str) -> None:
    job = job_with(tuple(words.split()), warm_start=False)
    made = plan(job, INVENTORY)
    assert made.nodes[0].prefix == tuple(words.split())
    assert facts_request(made, made.nodes[0]).pythons == []
    assert request_for(made, made.nodes[0], thorough=True) is None
    agents = {name: Behind(None) for name in NAMES}
    board = await Checking(job, INVENTORY, **agents).run()
    assert {code for code, _name in codes(board)} == {"python-unknown"}
    assert statuses(board, Check.SOFTWARE)[0] == "unknown"


def test_the_framework_is_asked_behind_the_prefix_and_a_plain_one_changes_nothing() -> None:
    made = plan(job_with(CONDA), INVENTORY)
    request = request_for(made, made.nodes[0], thorough=True)
    assert request is not None
    assert request.prefix == list(CONDA)
    plain = plan(job_with(("nice",)), INVENTORY)
    assert plain.nodes[0].prefix == ()
    assert facts_request(plain, plain.nodes[0]).prefix == []
    inside = plan(job_with(CONDA, container={"image": "torch:1", "engine": "docker"}), INVENTORY)
    assert inside.nodes[0].prefix == ()
