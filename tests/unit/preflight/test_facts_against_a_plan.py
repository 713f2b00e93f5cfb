"""What the facts of the hosts say against a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dtagent.protocol.facts import PythonFacts

from dttui.inventory.models import Inventory
from dttui.planning.planner import plan
from dttui.preflight.software import check_logout, differences, judge_software
from dttui.spec.findings import Severity
from dttui.spec.models import Run
from tests.unit.seed_cluster import environment, host_facts, make_job

INVENTORY = Inventory(environments=(environment("a", 1, python="/own/python"),))


def test_a_host_that_kills_at_logout_is_refused_with_the_command_that_mends_it() -> None:
    facts = replace(host_facts(1), logout_kills=True, user="lin")
    (finding,) = check_logout(plan(make_job("a"), INVENTORY).nodes[0], facts)
    assert (finding.code, finding.severity, finding.subject) == ("logout-kills", Severity.ERROR, "a")
    assert "loginctl enable-linger lin" in finding.hint


@pytest.mark.parametrize(
    ("own", "facts", "code", "remedy"),
    [
        (None, PythonFacts("/own/python", error="/own/python is not there"), "python-missing", "in the inventory"),
        ("/job/python", PythonFacts("/job/python", error="/job/python is not there"), "python-missing", "run.python"),
        (None, PythonFacts("/own/python", "/own/python", "3.11"), "package-missing", "environment, or run.python"),
        ("/job/python", PythonFacts("/job/python", "/job/python", "3.11"), "package-missing", "run.python"),
    ],
)
def test_the_remedy_is_where_the_interpreter_was_named(
    own: str | None, facts: PythonFacts, code: str, remedy: str
) -> None:
    job = make_job("a", run=Run(script="train.py", python=own))
    planned = plan(job, INVENTORY)
    (finding,) = judge_software(planned, planned.nodes[0], host_facts(1, pythons=[facts])).findings
    assert finding.code == code
    assert remedy in finding.hint
    assert ("run.python" in finding.hint) == (own is not None or code == "package-missing")


def test_another_torch_and_its_nccl_do_not_matter_to_tensorflow() -> None:
    inventory = Inventory(environments=(environment("a", 1, python="/py"), environment("b", 1, python="/py")))
    facts = {
        name: host_facts(
            1, pythons=[PythonFacts("/py", "/py", "3.11", {"torch": torch, "tensorflow": "2.21"}, nccl=nccl)]
        )
        for name, torch, nccl in (("a", "2.13.0", "2.27.3"), ("b", "2.12.1", "2.26.2"))
    }

    def differing(framework: str) -> list[str]:
        return [item.item for item in differences(plan(make_job("a", "b", framework=framework), inventory), facts)]

    assert differing("pytorch-ddp") == ["torch", "NCCL"]
    assert differing("tensorflow") == []
