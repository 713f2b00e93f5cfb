"""`dttui diagnose` on real jobs of the embedded cluster: failed, running, orphaned, cancelled, succeeded."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dttui import jobs
from dttui.engine.start import GRACE_S
from tests.agent.conversation import processes_with
from tests.integration.headless import dttui_here, result_of, shell_job, wait_for_state, write_job
from tests.processes import controller_of
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
GLOO = """
import os, signal, torch, torch.distributed as dist
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Who loses the other is to fail by itself.
dist.init_process_group("gloo")
rank, tensor = dist.get_rank(), torch.ones(4)
for step in range(2):
    dist.all_reduce(tensor)
    line = '{"step": %d, "loss": %f, "rank": %d}\\n' % (step, 2.5 - step, rank)
    descriptor = os.open(os.environ["DTTUI_METRICS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    print("step", step, flush=True)
if rank == 1:
    os.kill(os.getpid(), signal.SIGSEGV)
dist.all_reduce(tensor)
"""


STEPS_APART = """
import datetime, os, signal
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Each is to time out by itself.
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
model = DDP(torch.nn.Linear(4, 4))
def train(steps):
    for step in range(steps):
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
train(2 if dist.get_rank() == 1 else 3)  # In the second, forward meets too.
dist.barrier()
"""


SIZES_APART = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4 if dist.get_rank() == 0 else 8))
"""


ENDS_EARLY = """
import os, sys, time
if os.environ["RANK"] == "0":
    with open(sys.argv[1] + ".new", "w") as stream:
        stream.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    sys.exit()
while not os.path.exists(sys.argv[1]) or os.path.exists("/proc/" + open(sys.argv[1]).read()):
    time.sleep(0.1)
raise ValueError("bad batch")
"""


FAILS = """
import os, pathlib, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Each is to fail by itself.
place, rank = pathlib.Path(sys.argv[1]), os.environ["RANK"]
(place / (rank + ".here")).touch()
while len(list(place.glob("*.here"))) < 4:
    time.sleep(0.02)
if rank == "0":
    socket.create_server(("127.0.0.1", int(sys.argv[2])))
elif rank == "1":
    import numpy_of_nobody
elif rank == "2":
    open("/data/none/shard.bin")
else:
    with open("/dev/full", "wb") as stream:  # A device that has no room for anything.
        stream.write(bytes(100))
"""


def diagnosed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return dttui_here("diagnose", *arguments)


@pytest.mark.torch
def test_the_rank_that_crashed_is_told_and_those_that_lost_it_are_consequences(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "train.py").write_text(GLOO)
    run = {"script": "train.py", "workdir": "w"}
    done = dttui_here("--demo", "--apply", write_job(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-ddp", run=run))
    assert done.returncode == 100, done.stderr
    assert "Cause: It crashed in compiled code" in done.stderr
    assert f"rank 0 on {ONE}, exit code 1, a consequence: It lost the connection to another rank" in done.stderr
    assert "dttui diagnose " in done.stderr
    told = diagnosed("last", "--output", "json")
    assert told.returncode == 100
    found = result_of(told)
    first = found["first_failure"]
    assert (first["node"], first["rank"], first["signal_name"], found["cause"]["code"]) == (
        TWO,
        1,
        "SIGSEGV",
        "segfault",
    )
    assert [(item["rank"], item["cause"]["code"]) for item in found["failed_after"]] == [(0, "peer-gone")]
    assert [(item["rank"], item["doing"], item["step"], item["loss"]) for item in found["ranks"]] == [
        (0, "failed", 1, 1.5)
    ]
    assert found["before"]["samples"] > 0
    assert found["before"]["memory_total_mib"] > 0


@pytest.mark.torch
def test_ranks_that_waited_for_each_other_at_two_places_are_compared(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "train.py").write_text(STEPS_APART)
    run = {"script": "train.py", "workdir": "w"}
    done = dttui_here("--demo", "--apply", write_job(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-ddp", run=run))
    assert done.returncode == 100, done.stderr
    found = result_of(diagnosed("last", "--output", "json"))
    assert found["cause"]["code"] in ("collective-timeout", "peer-gone")
    assert f"rank 0 on {ONE} is in backward at train.py:11 (train)" in found["cause"]["words"]
    assert f"rank 1 on {TWO} waits in barrier at train.py:13" in found["cause"]["words"]
    assert sorted(item["call"] for item in found["places"]) == ["backward", "barrier"]


@pytest.mark.torch
def test_a_rank_that_gloo_aborts_for_another_size_is_told_with_the_line_of_the_script(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "train.py").write_text(SIZES_APART)
    run = {"script": "train.py", "workdir": "w"}
    done = dttui_here("--demo", "--apply", write_job(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-ddp", run=run))
    assert done.returncode == 100, done.stderr
    found = result_of(diagnosed("last", "--output", "json"))
    assert (found["first_failure"]["signal_name"], found["cause"]["code"]) == ("SIGABRT", "collective-mismatch")
    assert "brought 8 bytes by another rank where 4 were expected" in found["cause"]["words"]
    assert found["cause"]["words"].endswith("Python was in train.py, line 4, function <module>.")


@pytest.mark.torch
def test_a_rank_that_had_ended_with_0_is_told_and_its_launcher_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "train.py").write_text(ENDS_EARLY)
    run = {"script": "train.py", "workdir": "w", "args": [str(tmp_path / "pid")]}
    done = dttui_here("--demo", "--apply", write_job(tmp_path, {ONE: 1, TWO: 1}, framework="pytorch-ddp", run=run))
    assert done.returncode == 100, done.stderr
    assert f"rank 0 on {ONE}  had ended with 0" in diagnosed().stdout
    events = [json.loads(line) for line in jobs.find("last").events.read_bytes().splitlines()]
    times = {item["data"]["state"]: item["time"] for item in events if item["kind"] == "job_state"}
    assert times["FAILED"] - times["STOPPING"] < GRACE_S


def test_a_failed_job_names_the_line_of_the_log_and_what_the_others_did(tmp_path: Path) -> None:
    begun = tmp_path / "begun"  # What fails at once may do so before the other host has started anything.
    command = (
        f'echo begun; [ "$RANK" = 0 ] && touch {begun} && exec sleep 60; '
        f"until [ -e {begun} ]; do sleep 0.1; done; exec cat /data/none/shard.bin"
    )
    done = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 1, TWO: 1}, command))
    assert done.returncode == 100, done.stderr
    told = diagnosed()
    assert told.returncode == 100
    assert (
        f"✗ rank 1 on {TWO} exited with code 1\nLikely cause: {TWO} has no file /data/none/shard.bin.\n" in told.stdout
    )
    assert f"logs/0/{TWO}/1.err:1: cat: /data/none/shard.bin: No such file or directory" in told.stdout
    assert f"  rank 0 on {ONE}  ran until it was stopped\n      begun\n" in told.stdout
    assert diagnosed("--lang", "zh").stdout.splitlines()[2] == f"很可能的原因：{TWO} 上没有文件 /data/none/shard.bin。"


def test_real_failures_of_a_script_are_known_for_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "train.py").write_text(FAILS)
    expected = {
        0: ("port-in-use", f"A port that the script wanted on {ONE} was taken by another process."),
        1: ("missing-module", f"on {ONE} has no module numpy_of_nobody."),
        2: ("missing-file", f"{TWO} has no file /data/none/shard.bin."),
        3: ("disk-full", f"There was no room left on a disk of {TWO}."),
    }
    with socket.create_server(("127.0.0.1", 0)) as taken:
        run = {
            "command": [sys.executable, "train.py", str(tmp_path), str(taken.getsockname()[1])],
            "workdir": "w",
        }
        done = dttui_here("--demo", "--apply", write_job(tmp_path, {ONE: 2, TWO: 2}, framework="command", run=run))
    assert done.returncode == 100, done.stderr
    found = result_of(diagnosed("--output", "json"))
    failures = [{**found["first_failure"], "cause": found["cause"]}, *found["failed_after"]]
    told = {item["rank"]: (item["cause"]["code"], item["cause"]["words"]) for item in failures}
    assert {rank: code for rank, (code, _words) in told.items()} == {
        rank: code for rank, (code, _words) in expected.items()
    }
    assert all(words in told[rank][1] for rank, (_code, words) in expected.items())


def test_a_running_job_an_orphan_and_a_cancelled_one_are_told_as_such(tmp_path: Path) -> None:
    command = "trap 'exit 0' TERM; echo begun; while :; do sleep 0.1; done"
    done = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 1, TWO: 1}, command), "--detach")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(done.stdout.strip())
    wait_for_state(directory.job_id, "RUNNING")
    running = diagnosed(directory.job_id[:-3])
    assert running.returncode == 101
    assert "Nothing has failed so far: the job is not over (RUNNING)." in running.stdout
    assert f"rank 1 on {TWO}  runs" in running.stdout
    os.kill(controller_of(directory.path), signal.SIGKILL)
    wait_until(lambda: not directory.has_controller(), "the controller to be gone")
    orphan = diagnosed(directory.job_id, "--output", "json")
    assert orphan.returncode == 101
    assert result_of(orphan)["state"] == "UNKNOWN"
    assert "No controller watches this job" in diagnosed(directory.job_id).stdout
    assert dttui_here("stop", directory.job_id).returncode == 0
    cancelled = diagnosed(directory.job_id)
    assert cancelled.returncode == 103
    assert "Nothing has failed: the job was cancelled." in cancelled.stdout
    assert processes_with(f"DTTUI_JOB_ID={directory.job_id}") == []


def test_a_job_that_succeeded_has_nothing_to_tell_and_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert diagnosed().returncode == 102
    done = dttui_here("--demo", "--apply", shell_job(tmp_path, {ONE: 1}, "echo fine"))
    assert done.returncode == 0, done.stderr
    told = diagnosed()
    assert told.returncode == 0
    assert "Nothing has failed.\nfinished in " in told.stdout
