"""Rows of a job's nodes are right after each kind of change, and made anew only for the nodes that changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from dtagent.protocol.events import JobState
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.telemetry import GpuSample, HostSample

from dttui.files import append_line
from dttui.jobs import JobView, NodeView
from dttui.jobs.following import JobFollower
from dttui.tui import node_rows
from dttui.tui.node_rows import NodeRows
from dttui.tui.rows import node_row
from dttui.tui.widgets.node_row import NodeRow
from tests.tui.fake_fleet import job, make_inventory
from tests.tui.job_files import JobWriter

NODES = ("pytorch-dev-env", "llm-training-env", "nlp-research-lab")
NOW = 1_000_000.0
ALL = range(3)


@pytest.fixture
def writer() -> JobWriter:
    written = JobWriter(job(*NODES), make_inventory())
    written.nodes("running")
    written.state(JobState.RUNNING, "all ranks run")
    written.samples(90)
    return written


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of which nodes rows were made."""
    found: list[str] = []

    def noted(node: NodeView, job_id: str, failed: Mapping[int | None, str], **how: Any) -> NodeRow:
        found.append(node.plan.name)
        return node_row(node, job_id, failed, **how)

    monkeypatch.setattr(node_rows, "node_row", noted)
    return found


def fresh(view: JobView, *, is_over: bool = False, now: float = NOW) -> tuple[NodeRow, ...]:
    return NodeRows().of(view, ALL, is_over=is_over, now=now)


def test_only_the_row_of_a_node_with_another_reading_is_made_anew(writer: JobWriter, made: list[str]) -> None:
    follower, rows = JobFollower(writer.directory), NodeRows()
    follower.poll()
    first = rows.of(follower.view, ALL, is_over=False, now=NOW)
    assert made == list(NODES)
    assert rows.of(follower.view, ALL, is_over=False, now=NOW + 60) == first
    assert made == list(NODES)
    reading = HostSample(9, NOW, 5.0, gpus=[GpuSample(0, 7, 70_000, 81920)])
    append_line(writer.directory.samples(NODES[1]), json.dumps(to_wire(reading)))
    follower.poll()
    after = rows.of(follower.view, ALL, is_over=False, now=NOW + 61)
    assert made == [*NODES, NODES[1]]
    assert (after[0], after[2]) == (first[0], first[2])
    assert "7%" in after[1].slots[0].texts
    assert after == fresh(follower.view)


@pytest.mark.parametrize(
    "change",
    [
        lambda writer: writer.node(NODES[0], "stopping", "a save is awaited"),
        lambda writer: writer.node(NODES[0], "unknown", "no word", heard_at=NOW - 30),
        lambda writer: writer.rank_failed(NODES[0], 1, "rank 1 has failed"),
        lambda writer: writer.health("error", NODES[0], "the check failed"),
        lambda writer: writer.numbered(NODES[0], [3, 4], 14),
        lambda writer: writer.finding("warning", "goes on without it", "node-out", subject=NODES[0]),
        lambda writer: writer.progress("waiting", missing={NODES[0]: {"has_come": False, "said": ""}}),
        lambda writer: writer.samples(12),
        lambda writer: writer.outcome(JobState.FAILED, "it has failed", 100),
        lambda writer: writer.second_attempt(JobState.LAUNCHING, "once more"),
    ],
    ids=["state", "silence", "failure", "health", "numbers", "out", "absence", "reading", "end", "attempt"],
)
def test_rows_are_those_of_the_nodes_as_they_are_after_each_change(
    writer: JobWriter, change: Callable[[JobWriter], None]
) -> None:
    follower, rows = JobFollower(writer.directory), NodeRows()
    follower.poll()
    before = rows.of(follower.view, ALL, is_over=follower.is_over, now=NOW)
    change(writer)
    follower.poll()
    after = rows.of(follower.view, ALL, is_over=follower.is_over, now=NOW)
    assert after == fresh(follower.view, is_over=follower.is_over)
    assert after != before


def test_for_how_long_a_host_is_silent_goes_on(writer: JobWriter) -> None:
    writer.node(NODES[0], "unknown", "no word", heard_at=NOW - 30)
    follower, rows = JobFollower(writer.directory), NodeRows()
    follower.poll()
    first, later = (rows.of(follower.view, ALL, is_over=False, now=NOW + seconds)[0].note for seconds in (0, 7))
    assert first != later
    assert later == fresh(follower.view, now=NOW + 7)[0].note


def test_of_nodes_out_of_sight_only_what_is_more_than_a_reading_is_made_anew(
    writer: JobWriter, made: list[str]
) -> None:
    follower, rows = JobFollower(writer.directory), NodeRows()
    follower.poll()
    rows.of(follower.view, range(0), is_over=False, now=NOW)
    assert made == list(NODES)
    writer.samples(12)
    follower.poll()
    rows.of(follower.view, range(1, 2), is_over=False, now=NOW)
    assert made == [*NODES, NODES[1]]
    writer.node(NODES[2], "stopping", "a save is awaited")
    follower.poll()
    rows.of(follower.view, range(1, 2), is_over=False, now=NOW)
    assert made == [*NODES, NODES[1], NODES[2]]
    assert rows.of(follower.view, ALL, is_over=False, now=NOW) == fresh(follower.view)
