"""Limits that a job file sets: how long a rendezvous may take, how much of a log is kept; bounds, places, the plan."""

from __future__ import annotations

import pytest

from dttui.cli.plan_text import plan_text
from dttui.planning.planner import plan
from dttui.spec import parse_job
from dttui.spec.problems import DocumentError
from tests.unit.seed_cluster import SEED

JOB = "distributed_training:\n  name: a\n  cluster: {nodes: [{id: pytorch-dev-env}]}\n"


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("  communication: {protocol: NCCL}", 300.0),
        ("  communication: {rendezvous_timeout: 90s}", 90.0),
        ("  communication: {rendezvous_timeout: 1.5 h}", 5400.0),
    ],
)
def test_the_limit_of_a_rendezvous_is_five_minutes_or_what_the_job_says(line: str, seconds: float) -> None:
    job = parse_job(JOB + line, "job.yaml")
    assert plan(job, SEED).rendezvous_timeout_s == seconds


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("  monitoring: {metrics: [loss]}", 2 << 30),
        ("  monitoring: {log_cap: 512 MiB}", 512 << 20),
        ("  monitoring: {log_cap: 4GB}", 4 * 10**9),
    ],
)
def test_the_cap_of_logs_is_2_gib_or_what_the_job_says(line: str, size: int) -> None:
    job = parse_job(JOB + line, "job.yaml")
    assert plan(job, SEED).log_cap_bytes == size


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  communication: {rendezvous_timeout: 4s}", "4:39: distributed_training.communication.rendezvous_timeout: "
         "must be from 5s to 24h"),
        ("  communication: {rendezvous_timeout: 25h}", "must be from 5s to 24h"),
        ("  communication: {rendezvous_timeout: 300}", "a duration, such as 30s, 10m or 2h"),
        ("  communication: {rendezvous_time: 5m}", 'did you mean "rendezvous_timeout"?'),
        ("  monitoring: {log_cap: 100kB}", "4:25: distributed_training.monitoring.log_cap: must be from 1MiB to 1TiB"),
        ("  monitoring: {log_cap: 2TiB}", "must be from 1MiB to 1TiB"),
        ("  monitoring: {log_cap: 512}", "expected a number with a unit"),
        ("  monitoring: {log_cap: -1}", "must not be negative"),
    ],
)  # fmt: skip
def test_limits_out_of_bounds_are_told_with_their_place(line: str, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_job(JOB + line, "job.yaml")
    assert said in caught.value.message


def test_a_plan_shows_both_limits() -> None:
    text = JOB + "  communication: {rendezvous_timeout: 90s}\n  monitoring: {log_cap: 512MiB}"
    told = plan_text(plan(parse_job(text, "job.yaml"), SEED))
    assert "rendezvous within 90 s · at most 512MiB of each log kept on a host" in told
