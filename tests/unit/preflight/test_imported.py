"""What hosts say of the modules that a job's script imports: what is missing, with the line that installs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.facts import HostFacts
from dtagent.protocol.rpc import to_wire

from dttui.errors import PreflightError
from dttui.inventory.models import Inventory
from dttui.launch.local_plan import make_local_plan
from dttui.planning.cost.links import MeasuredLink
from dttui.planning.models import Plan
from dttui.planning.submission import Submission
from dttui.preflight.imported import in_container, module_path, modules_asked
from dttui.spec.container import Container
from dttui.spec.models import Job, Run
from tests.unit.preflight.test_preflight import FACTS, INVENTORY, NAMES, TORCH, Agent, Checking, codes
from tests.unit.seed_cluster import make_job

SCRIPT = "import torch, cv2, yaml\ndef f():\n    import wandb\n"


def job(tmp_path: Path, text: str = SCRIPT, **run: Any) -> Job:
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "work" / "train.py").write_text(text)
    return make_job(*NAMES, run=Run(script="train.py", workdir="work", **run))


class Has(Agent):
    """A host whose interpreter has some modules; `None` of an agent that looks for none."""

    def __init__(self, modules: dict[str, str] | None, missing: list[str] | None) -> None:
        self.requests: list[dict[str, Any]] = []

        def facts(params: dict[str, Any]) -> dict[str, Any]:
            self.requests.append(params)
            told = {"prefix": params["prefix"] or None, "modules": modules, "missing_modules": missing}
            return {**to_wire(FACTS), "pythons": [{**to_wire(TORCH), "path": params["pythons"][0], **told}]}

        super().__init__(facts=facts)


def planned(tmp_path: Path, made: Job) -> Plan:
    return make_local_plan(Submission(made, INVENTORY, base=tmp_path))


class Sent(Checking):
    """A preflight of a job whose script is sent."""

    def __init__(self, tmp_path: Path, made: Job, **agents: Agent) -> None:
        super().__init__(made, INVENTORY, **agents)
        self.plan = planned(tmp_path, made)

    def _plan_anew(self, known: Inventory, facts: dict[str, HostFacts], links: Sequence[MeasuredLink]) -> Plan:
        return super()._plan_anew(known, facts, links).model_copy(update={"imports": self.plan.imports})


ALL = {"torch": "2.13.0", "cv2": "4.12.0.88", "yaml": "6.0.3", "wandb": "0.22.0"}


async def test_what_a_host_lacks_is_named_with_the_line_that_installs_it(tmp_path: Path) -> None:
    lacking = Has({"torch": "2.13.0"}, ["cv2", "yaml", "wandb"])
    board = await Sent(tmp_path, job(tmp_path), a=Has(ALL, []), b=lacking, c=Has(ALL, [])).run()
    sure, late = (item for item in board.findings if item.subject == "b")
    assert (sure.code, sure.severity.value) == ("module-missing", "error")
    assert sure.message == "b: /py has no cv2, yaml, which the script imports, first at train.py:1"
    assert sure.hint == "Install them there: /py -m pip install opencv-python pyyaml"
    assert (late.code, late.severity.value) == ("module-late", "info")
    assert late.message == "b: /py has no wandb, imported in a function or under a condition, first at train.py:3"
    assert late.hint.endswith("else: /py -m pip install wandb")
    assert lacking.requests[0]["modules"]["cv2"][0] == "opencv-python"
    with pytest.raises(PreflightError, match="cv2"):
        board.raise_errors()


async def test_who_knows_better_ignores_what_is_missing(tmp_path: Path) -> None:
    board = await Sent(tmp_path, job(tmp_path), b=Has({}, ["cv2"])).run("module-missing")
    board.raise_errors()


async def test_what_may_be_found_by_the_script_s_own_path_is_a_warning(tmp_path: Path) -> None:
    made = job(tmp_path, "import sys\nsys.path.append('/srv/lib')\nimport ours\n")
    board = await Sent(tmp_path, made, b=Has({}, ["ours"])).run()
    (found,) = (item for item in board.findings if item.subject == "b")
    assert (found.code, found.severity.value) == ("module-missing", "warning")
    assert "what the script adds to sys.path" in found.hint


async def test_versions_of_what_is_imported_are_compared_between_hosts(tmp_path: Path) -> None:
    other = Has({**ALL, "cv2": "4.5.1.48", "yaml": ""}, [])
    board = await Sent(tmp_path, job(tmp_path), a=Has(ALL, []), b=other, c=Has(ALL, [])).run()
    assert codes(board) == [("drift", "cv2")]
    (drift,) = board.drift
    assert (drift.usual, drift.others) == ("4.12.0.88", {"4.5.1.48": ("b",)})


async def test_an_agent_that_looks_for_no_modules_is_no_reason_to_refuse(tmp_path: Path) -> None:
    agents = {name: Has(None, None) for name in NAMES}
    assert codes(await Sent(tmp_path, job(tmp_path), **agents).run()) == []


async def test_what_the_framework_requires_is_told_once(tmp_path: Path) -> None:
    lacks = Has({}, ["torch"])
    board = await Sent(tmp_path, job(tmp_path, "import torch"), b=lacks).run()
    assert "module-missing" not in [code for code, _subject in codes(board)]


async def test_behind_a_prefix_the_line_that_installs_begins_with_it(tmp_path: Path) -> None:
    made = job(tmp_path, prefix=("conda", "run", "-n", "train"))
    agents: dict[str, Agent] = {name: Has({}, ["cv2"]) for name in NAMES}
    board = await Sent(tmp_path, made, **agents).run()
    hints = {item.hint for item in board.findings if item.code == "module-missing"}
    assert hints == {"Install them there: conda run -n train /py -m pip install opencv-python"}


def test_the_job_s_own_path_on_the_hosts_is_looked_at_besides(tmp_path: Path) -> None:
    made = planned(tmp_path, job(tmp_path, env={"PYTHONPATH": "src:/srv/lib:${DIRECTORY}/x"}))
    assert module_path(made, made.nodes[0]) == ["/srv/lib"]
    assert module_path(planned(tmp_path, job(tmp_path)), made.nodes[0]) == []


def test_a_container_is_asked_as_it_will_be_started_but_for_what_only_a_start_knows(tmp_path: Path) -> None:
    container = Container(engine="docker", image="torch:2", mounts=("/srv/lib:/srv/lib",), options=("--ipc=host",))
    made = planned(tmp_path, job(tmp_path, container=container))
    asked = in_container(made, made.nodes[0])
    assert asked is not None
    assert (asked.prefix[:4], asked.prefix[-1]) == (["docker", "run", "--rm", "--pull=never"], "torch:2")
    assert "--volume=/srv/lib:/srv/lib" in asked.prefix
    assert not any("${" in word or word.startswith("--name=") for word in asked.prefix)
    assert (asked.pythons, asked.modules) == (["python3"], modules_asked(made))
    plain = planned(tmp_path, job(tmp_path))
    assert in_container(plain, plain.nodes[0]) is None


async def test_what_an_image_lacks_is_named_too(tmp_path: Path) -> None:
    made = job(tmp_path, container=Container(engine="docker", image="torch:2"))
    image = {"has_engine": True, "has_image": True, "image_id": "sha256:ab"}
    agents = {name: Has({"torch": "2.13.0"}, ["cv2"]) for name in NAMES}
    for agent in agents.values():
        agent.answers["image"] = image
    board = await Sent(tmp_path, made, **agents).run()
    found = [item for item in board.findings if item.code == "module-missing"]
    assert [item.subject for item in found] == list(NAMES)
    assert found[0].hint == "Put them into the image: python3 -m pip install opencv-python"
