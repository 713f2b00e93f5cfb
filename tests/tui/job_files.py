"""Job directories as a controller writes them: plan, events, telemetry, metrics and logs of a job that never ran."""

from __future__ import annotations

import fcntl
import json
import math
import os
import time
from typing import Any

from dtagent.protocol.events import EventKind, JobState, Metric
from dtagent.protocol.rpc import to_wire
from dtagent.protocol.telemetry import GpuSample, HostSample, RankSample

from dttui import jobs
from dttui.files import append_line
from dttui.i18n import msg, nmsg
from dttui.inventory.models import Inventory
from dttui.jobs import JobDirectory
from dttui.jobs.event_log import EventLog
from dttui.jobs.launch_file import LaunchFile
from dttui.planning.models import Plan
from dttui.planning.planner import plan as make_plan
from dttui.spec.loader import dump_job
from dttui.spec.models import Job

TRACEBACK = """Traceback (most recent call last):
  File "/var/tmp/dtagent-1000/jobs/gpt-small/0/work/train.py", line 87, in main
    loss = step(model, batch)
  File "/var/tmp/dtagent-1000/jobs/gpt-small/0/work/train.py", line 41, in step
    raise ValueError(f"batch {index} has no samples")
ValueError: batch 118 has no samples
"""


HOSTILE = (
    "[/red][bold]✓ SUCCEEDED[/] \x1b[2J\x1b[31mdttui:\x07 press ctrl+l\u202e\u2066 to trust \u200bthis host "
    + "很长" * 60,
    "\x1b]0;owned\x07\r$ rm -rf ~ [@click=app.quit]here[/] " + "x" * 300,
    "e\u0301" * 40 + "\u0300" * 200 + " Z" + "\u0323" * 300 + "\n\n\n\tTrust it? [yes/no] yes",
)
"""What a host may say: markup, escapes, words that turn round or are stacked, lines without an end."""


class JobWriter:
    """Writes what a controller would, step by step, as a test goes."""

    def __init__(self, job: Job, inventory: Inventory) -> None:
        self.directory: JobDirectory = jobs.create(job.name)
        self.plan: Plan = make_plan(job, inventory)
        self.directory.plan.write_text(self.plan.model_dump_json())
        self._log = EventLog(self.directory.events)
        self._seq = 0

    def watch(self) -> None:
        """Hold the job as its controller does, to the end of this process."""
        fcntl.flock(os.open(self.directory.lock, os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)
        os.utime(self.directory.lock, (time.time() + 3600, time.time() + 3600))  # It gives no further sign of life.

    def submitted(self, job: Job, inventory: Inventory) -> None:
        """What was submitted is kept, so that it can be run once more."""
        launch = LaunchFile(inventory=inventory, base=self.directory.path, language="en")
        self.directory.document.write_text(dump_job(job), encoding="utf-8")
        self.directory.launch.write_text(launch.model_dump_json(), encoding="utf-8")

    def state(self, state: JobState, message: str = "") -> None:
        """The job came to a state."""
        self._log.add(EventKind.JOB_STATE, message, attempt=0, data={"state": state.value})

    def restart(self, message: str, plan: Plan) -> None:
        """Another attempt was promised, with this plan."""
        self._log.add(EventKind.JOB_STATE, message, attempt=0, data={"state": JobState.RESTARTING.value})
        self.plan = plan
        self.directory.plan.write_text(plan.model_dump_json())

    def second_attempt(self, state: JobState, message: str = "") -> None:
        """It came to a state."""
        self._log.add(EventKind.JOB_STATE, message, attempt=1, data={"state": state.value})

    def progress(self, message: str, **data: object) -> None:
        """Something is being done."""
        self._log.add(EventKind.PROGRESS, message, attempt=0, data=data)

    def nodes(self, state: str, message: str = "") -> None:
        """All nodes came to a state."""
        for node in self.plan.nodes:
            data = {"state": state, "gpu_ids": list(range(node.cuda_slots))}
            if state == "prepared":
                data["checkpoints"] = f"/var/tmp/dtagent-1000/jobs/{self.job_id}/0/checkpoints"
            self._log.add(EventKind.NODE_STATE, message, attempt=0, node=node.name, data=data)

    def node(self, name: str, state: str, message: str = "", **data: object) -> None:
        """One node came to a state."""
        self._log.add(EventKind.NODE_STATE, message, attempt=0, node=name, data={"state": state, **data})

    def samples(self, load: int, *, ago_s: float = 0.0, host: dict[str, Any] | None = None, **more: Any) -> None:
        """All nodes were read, so long ago, and of each host and GPU `more` than is usual."""
        self._seq += 1
        for node in self.plan.nodes:
            ranks = [
                RankSample(rank, 1000 + rank, float(load - rank % 3), 420 + rank, 12, "running", local)
                for local, rank in enumerate(node.ranks)
            ]
            gpus = [
                GpuSample(i, load - (i * 7) % 5, 70_000 + 512 * i, 81920, 60 + i, 390.0 + 3 * i, **more)
                for i in range(node.cuda_slots)
            ]
            now, jobs_there = time.time() - ago_s, {self.job_id: ranks}
            of_host = {"memory_total_mib": 500_000, "gpus": gpus, "ranks": jobs_there, **(host or {})}
            reading = HostSample(self._seq, now, float(load), **of_host)
            append_line(self.directory.samples(node.name), json.dumps(to_wire(reading)))

    def metrics(self, steps: int, took_s: float = 0.0, pace: float = 1.0) -> None:
        """Rank 0 reported this many steps, of four times as many, until now; `pace` times as well as is usual."""
        now = time.time()
        for step in range(10, steps + 1, 10):
            loss = 2.1 + 3.4 * math.exp(-step * pace / 60) + 0.03 * math.sin(step)
            speed, at = pace * 81_000.0 + 900 * math.sin(step / 15), now - took_s * (1 - step / steps)
            self.report(Metric(0, step, loss, tokens_per_s=speed, total_steps=4.0 * steps, time=at))

    def report(self, metric: Metric) -> None:
        """A rank reported this."""
        append_line(self.directory.metrics, json.dumps(to_wire(metric)))

    def logs(self, node: str, stream: str, *lines: str) -> None:
        """A process printed."""
        directory = self.directory.logs(0, node)
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / stream).open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def checks(self, name: str, **cells: tuple[str, float | None, str]) -> None:
        """A node was checked: verdict, seconds and words of each check."""
        told = {check: dict(zip(("verdict", "seconds", "text"), cell, strict=True)) for check, cell in cells.items()}
        self._log.add(EventKind.PREFLIGHT, "", attempt=0, node=name, data={"cells": told})

    def rank_failed(self, node: str, rank: int, message: str, **data: object) -> None:
        """A rank broke."""
        self._log.add(
            EventKind.RANK_FAILED, message, attempt=0, node=node, rank=rank, data={"time": time.time(), **data}
        )

    def numbered(self, name: str, ranks: list[int], world_size: int) -> None:
        """Torchrun has numbered the ranks of a node by itself."""
        span = f"{ranks[0]}–{ranks[-1]}" if len(ranks) > 1 else str(ranks[0])
        told = nmsg("{host}: rank {ranks} of {size}", "{host}: ranks {ranks} of {size}", len(ranks),
                    host=name, ranks=span, size=world_size)  # fmt: skip
        data = {"ranks": ranks, "world_size": world_size}
        self._log.add(EventKind.RANKS, told, attempt=0, node=name, data=data)

    def finding(self, severity: str, message: str, code: str = "made-up", **data: object) -> None:
        """Something was found on the way to the launch."""
        self._log.add(EventKind.FINDING, message, attempt=0, data={"code": code, "severity": severity, **data})

    def hang(self, severity: str, message: str) -> None:
        """Nothing comes of any rank, or does again."""
        self._log.add(EventKind.HANG, message, attempt=0, data={"severity": severity})

    def health(self, severity: str, node: str, what: str = "", **data: object) -> None:
        """The job's own command has it that a host is unhealthy, or healthy again."""
        message = msg("{host} is unhealthy: {what}", host=node, what=what)
        if severity == "info":
            message = msg("{host} is healthy again, after {seconds:.0f} s", host=node, seconds=40)
        told = {"severity": severity, "what": what, "since": time.time() - 200, **data}
        self._log.add(EventKind.HEALTH, message, attempt=0, node=node, data=told)

    def outcome(self, state: JobState, message: str, exit_code: int) -> None:
        """The job is over."""
        self.state(state, message)
        self._log.add(EventKind.OUTCOME, message, data={"state": state.value, "exit_code": exit_code})

    @property
    def job_id(self) -> str:
        """The job's id."""
        return self.directory.job_id


def checked(job: Job, inventory: Inventory) -> JobWriter:
    """A job whose hosts are being checked: one has trouble, and one has not answered yet."""
    writer = JobWriter(job, inventory)
    writer.state(JobState.PREFLIGHT, nmsg("checking {count} host", "checking {count} hosts", len(writer.plan.nodes)))
    fine, troubled, silent = (node.name for node in writer.plan.nodes)
    common: dict[str, tuple[str, float | None, str]] = {
        "reach": ("ok", 0.21, "10.0.0.11"),
        "agent": ("ok", 0.21, "0.1.0"),
        "software": ("ok", 1.34, "Python 3.11.7 · torch 2.13.0"),
        "limits": ("ok", 1.34, "20000 files"),
        "health": ("unknown", 0.4, "the driver says nothing"),
        "room": ("ok", 0.05, "disk 77 GB · shm 26 GB"),
        "clock": ("ok", 0.03, "+0.7 ms ± 0.9 ms"),
        "paths": ("none", None, "all is sent with the job"),
    }
    writer.checks(fine, **common, gpus=("ok", 0.4, "2 of 2 free"), master=("ok", 0.1, "eth0 0.12 ms"))
    writer.checks(troubled, **common, gpus=("warning", 0.4, "4 of 4 free"), master=("error", 4.0, "timed out"))
    writer.checks(troubled, peers=("pending", None, ""))
    writer.checks(silent, reach=("pending", None, ""))
    message = f"{troubled} → {fine}:29517 timed out (10.0.0.11)"
    writer.finding("error", message, "master-unreachable")
    return writer


def waiting(job: Job, inventory: Inventory) -> JobWriter:
    """A job of which one node waits at the rendezvous, one has said why it does not come, and one says nothing."""
    writer = JobWriter(job, inventory)
    writer.state(JobState.LAUNCHING, nmsg("preparing {count} host", "preparing {count} hosts", len(writer.plan.nodes)))
    writer.nodes("running")
    size = writer.plan.world_size
    writer.state(JobState.RENDEZVOUS, nmsg("waiting for {count} rank", "waiting for {count} ranks", size))
    first, second, third = (node.name for node in writer.plan.nodes)
    message = msg(
        "{joined} of {count} nodes have joined after {seconds} s; waiting for {who}",
        joined=1,
        count=3,
        seconds=40,
        who=second,
    )
    said = "[W1121 14:02:11.437498742 socket.cpp:767] [c10d] No route to host (errno: 113), 10.0.0.11:29517"
    missing = {
        first: {"has_come": True, "said": ""},
        second: {"has_come": False, "said": said},
        third: {"has_come": None, "said": ""},
    }
    writer.progress(message, waited_s=40, missing=missing)
    return writer


def missed(job: Job, inventory: Inventory) -> JobWriter:
    """A job of which one node never came to the rendezvous."""
    writer = waiting(job, inventory)
    name = writer.plan.nodes[1].name
    said = "[W1121 14:02:11.437498742 socket.cpp:767] [c10d] No route to host (errno: 113), 10.0.0.11:29517"
    writer.logs(name, "launcher.err", said)
    writer.progress("", waited_s=300, port=29517, missing={name: {"has_come": False, "said": said}})
    writer.nodes("stopped", msg("ended by itself after SIGTERM"))
    late = msg("{who} did not join within {seconds} s", who=name, seconds=300)
    writer.outcome(JobState.FAILED, late, 100)
    return writer


def running(job: Job, inventory: Inventory, took_s: float = 0.0) -> JobWriter:
    """A job that runs and has come to step 200, in so many seconds."""
    writer = JobWriter(job, inventory)
    size = writer.plan.world_size
    writer.state(JobState.PREFLIGHT, nmsg("checking {count} host", "checking {count} hosts", len(writer.plan.nodes)))
    writer.nodes("connected")
    writer.state(JobState.LAUNCHING, nmsg("preparing {count} host", "preparing {count} hosts", len(writer.plan.nodes)))
    writer.nodes("prepared")
    sent = "sent {count} file, {size:.1f} MB in all", "sent {count} files, {size:.1f} MB in all"
    writer.progress(nmsg(*sent, 5, size=0.2))
    writer.state(JobState.RENDEZVOUS, nmsg("waiting for {count} rank", "waiting for {count} ranks", size))
    writer.nodes("running")
    writer.state(JobState.RUNNING, nmsg("the rank runs", "all {count} ranks run", size))
    for ago_s in range(600, 0, -30):
        writer.samples(96 - ago_s // 25 % 7 if ago_s < 540 else 9, ago_s=ago_s)
    writer.samples(97)
    writer.metrics(200, took_s)
    for node in writer.plan.nodes:
        for rank in node.ranks:
            lines = [f"step {step:>4}  loss {5.5 - step / 60:.4f}  81.2k tokens/s" for step in range(10, 201, 10)]
            writer.logs(node.name, f"{rank}.out", *(lines if rank == 0 else [f"rank {rank} is ready"]))
    return writer


def succeeded(job: Job, inventory: Inventory) -> JobWriter:
    """A job that went well."""
    writer = running(job, inventory)
    writer.nodes("ended")
    writer.outcome(JobState.SUCCEEDED, msg("finished in {seconds} s", seconds=42), 0)
    return writer


def trained(job: Job, inventory: Inventory, pace: float) -> JobWriter:
    """A job that went well, with its job file, and learned faster or slower than is usual."""
    writer = JobWriter(job, inventory)
    writer.submitted(job, inventory)
    writer.state(JobState.RUNNING, nmsg("the rank runs", "all {count} ranks run", writer.plan.world_size))
    writer.metrics(400, 60.0, pace)
    writer.outcome(JobState.SUCCEEDED, msg("finished in {seconds} s", seconds=60), 0)
    return writer


def silent(job: Job, inventory: Inventory) -> JobWriter:
    """A job of which one host has not been heard of for a while."""
    writer = running(job, inventory)
    name, seconds = writer.plan.nodes[1].name, 12.0
    message = msg("no word from {host} for {seconds:.0f} s", host=name, seconds=seconds)
    writer.node(name, "unknown", message, heard_at=time.time() - seconds)
    return writer


def agent_gone(job: Job, inventory: Inventory) -> JobWriter:
    """A job that goes on where the agent of one host is gone."""
    writer = running(job, inventory)
    name = writer.plan.nodes[1].name
    why = msg("{host}: the agent is not there any more", host=name)
    told = msg(
        "{why}; what runs there goes on, and nobody sees it. `dttui agents deploy {host}` brings the agent back",
        why=why, host=name,
    )  # fmt: skip
    writer.node(name, "agent_gone", told, heard_at=time.time() - 30.0)
    return writer


def without_one(job: Job, inventory: Inventory) -> JobWriter:
    """An elastic job whose torchrun has started all ranks again, without the last node."""
    writer = running(job, inventory)
    *inside, out = writer.plan.nodes
    ranks = sum(len(node.ranks) for node in inside)
    reason = msg("{host}: no answer within {seconds:g} s", host=out.name, seconds=20)
    message = msg(
        "{host} is out: {why}. The job goes on with {count} of {all} nodes",
        host=out.name, why=reason, count=len(inside), all=len(writer.plan.nodes),
    )  # fmt: skip
    writer.finding("warning", message, code="node-out", subject=out.name)
    writer.node(out.name, "lost", msg("out of the job, and out of reach; what runs there is unknown"))
    writer.state(JobState.RUNNING, msg("torchrun starts all ranks again, without {hosts}", hosts=out.name))
    begin = 0
    for node in inside:
        own = list(range(begin, begin + len(node.ranks)))
        begin += len(own)
        writer.numbered(node.name, own, ranks)
    writer.state(JobState.RUNNING, nmsg("the rank runs", "all {count} ranks run", ranks))
    return writer


def hostile(job: Job, inventory: Inventory) -> JobWriter:
    """A job that failed on a host whose every word wants to be something else."""
    writer = running(job, inventory)
    node = writer.plan.nodes[-1]
    rank = node.ranks[-1]
    writer.logs(node.name, f"{rank}.err", *HOSTILE)
    writer.finding("warning", HOSTILE[0])
    writer.rank_failed(
        node.name, rank, HOSTILE[0], exit_code=1, signal=None, error=HOSTILE[1], traceback="\n".join(HOSTILE),
        tail=list(HOSTILE),
    )  # fmt: skip
    for item in writer.plan.nodes:
        writer.node(item.name, "failed" if item is node else "stopped", HOSTILE[2])
    writer.outcome(JobState.FAILED, HOSTILE[0], 100)
    return writer


def cancelled(job: Job, inventory: Inventory) -> JobWriter:
    """A job that was stopped, on one node by killing it."""
    writer = running(job, inventory)
    writer.state(JobState.STOPPING, msg("stopping on request"))
    writer.nodes("stopping")
    *others, last = writer.plan.nodes
    for node in others:
        writer.node(node.name, "stopped", msg("ended by itself after SIGTERM"))
    writer.node(last.name, "stopped", msg("killed"))
    writer.outcome(JobState.CANCELLED, msg("stopped on request; killed on {hosts}", hosts=last.name), 103)
    return writer


def failed(job: Job, inventory: Inventory) -> JobWriter:
    """A job of which one rank raised an exception."""
    writer = running(job, inventory)
    node = writer.plan.nodes[-1]
    rank = node.ranks[-1]
    how = msg("{who} exited with code {code}", who=msg("rank {rank} on {host}", rank=rank, host=node.name), code=1)
    tail = [
        "rank 13: reading shard 118",
        "[W1121 14:02:11] socket.cpp: the peer closed the connection",
        *TRACEBACK.splitlines(),
    ]
    writer.logs(node.name, f"{rank}.err", *tail)
    writer.rank_failed(
        node.name,
        rank,
        msg("{host}: {reason}", host=how, reason="ValueError: batch 118 has no samples"),
        exit_code=1,
        signal=None,
        error="ValueError: batch 118 has no samples",
        traceback=TRACEBACK,
        tail=tail,
    )
    writer.state(JobState.STOPPING, msg("a failure on {host} ends all", host=node.name))
    writer.nodes("stopping")
    for item in writer.plan.nodes:
        message = msg("a process failed") if item is node else msg("ended by itself after SIGTERM")
        writer.node(item.name, "failed" if item is node else "stopped", message)
    writer.outcome(JobState.FAILED, how, 100)
    return writer
