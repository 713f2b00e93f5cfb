"""What a plan would do otherwise than the last launch of its job."""

from __future__ import annotations

from dttui.compose.draft_answers import LaunchChanges
from dttui.compose.launch_changes import changes_since_launch
from dttui.planning.planner import plan
from dttui.spec import dump_job
from dttui.spec.models import Job, Run
from tests.tui.fake_fleet import job, make_inventory
from tests.tui.job_files import JobWriter

INVENTORY = make_inventory()
NODES = ("pytorch-dev-env", "llm-training-env")


def launched(before: Job) -> JobWriter:
    writer = JobWriter(before, INVENTORY)
    writer.directory.document.write_text(f"# as it was\n{dump_job(before)}")
    return writer


def changes(after: Job) -> LaunchChanges:
    found = changes_since_launch(f"# new\n{dump_job(after)}", plan(after, INVENTORY))
    assert found is not None
    return found


def signed(found: LaunchChanges, title: str) -> list[str]:
    (part,) = [item for item in found.parts if item.title == title]
    return [f"{line.sign}{line.text.strip()}" for line in part.lines if line.sign in "+-"]


def test_of_a_job_that_was_never_launched_there_are_no_changes() -> None:
    launched(job(*NODES, name="gpt small"))
    assert changes_since_launch(dump_job(job(*NODES)), plan(job(*NODES), INVENTORY)) is None, (
        "another name of the same slug"
    )


def test_the_same_job_again_has_no_changes_whatever_its_comments() -> None:
    launched(job(*NODES))
    found = changes(job(*NODES))
    assert (found.parts, found.trouble) == ((), "")


def test_what_changed_on_all_nodes_alike_is_told_once() -> None:
    launched(job(*NODES))
    found = changes(job(*NODES, run=Run(script="/opt/train.py", args=("--steps", "900"), env={"LR": "0.1"})))
    assert [part.title for part in found.parts] == [
        "job",
        "command launcher on every node",
        "environment of launcher on every node",
    ]
    assert signed(found, "command launcher on every node") == ["---steps 200", "+--steps 900"]
    assert "+LR=0.1" in signed(found, "environment of launcher on every node")


def test_nodes_that_come_and_go_are_told_and_files_by_their_names() -> None:
    launched(job(*NODES))
    found = changes(job(NODES[0], "a100-17"))
    nodes = signed(found, "nodes")
    assert [line.split(" · ")[0] for line in nodes] == [f"-1 {NODES[1]}", "+1 a100-17"]
    assert f"file pytorch_ddp_config.yaml on {NODES[0]}" in [part.title for part in found.parts]


def test_it_is_the_newest_launch_that_counts_and_one_that_is_damaged_is_said_to_be() -> None:
    launched(job(*NODES))
    newest = launched(job(NODES[0]))
    newest.progress("begins")
    assert changes(job(NODES[0])).job_id == newest.job_id
    newest.directory.document.write_text("[")
    newest.directory.plan.write_text('{"job_name": "gpt-small"}')
    found = changes(job(NODES[0]))
    assert (found.parts, found.trouble) == ((), "its job file cannot be read")


def test_tokens_are_not_shown() -> None:
    launched(job(*NODES))
    token = "hf_" + "a" * 30
    found = changes(job(*NODES, run=Run(script="/opt/train.py", args=("--token", token))))
    assert token not in str(found)
