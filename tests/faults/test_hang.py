"""Ranks that stand still on isolated hosts, each for a reason of its own: who stands where, and who is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol.events import Event, EventKind, JobState

from dttui import jobs
from dttui.inventory import load_inventory
from dttui.jobs import JobDirectory
from dttui.launch.local_plan import make_local_plan
from dttui.launch.submit import submit
from dttui.planning.submission import Submission
from dttui.spec import load_document
from tests.integration.headless import DEADLINE_S, dttui, dttui_here, result_of, write_job
from tests.lab.hosts import Lab
from tests.lab.interpreter import USER_PREFIX
from tests.lab.shared import SHARED, shared_by
from tests.waiting import wait_until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300), pytest.mark.xdist_group("lab of watches")]
SCRIPT = """\
import datetime, json, os, signal, threading, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, Dataset
told = json.load(open(os.environ["DTTUI_CONFIG"]))["distributed"]
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=told["timeout_s"] or 1800))
rank, how = dist.get_rank(), os.environ["HOW"]
if "KEEPS_SIGNAL" in os.environ:
    signal.signal(signal.SIGRTMAX - 3, lambda *_: None)
again = os.environ["DTTUI_ATTEMPT"] != "0"

def step(number):
    dist.all_reduce(torch.ones(8))
    with open(os.environ["DTTUI_METRICS"], "a") as stream:
        stream.write(json.dumps({"step": number, "rank": rank}) + "\\n")
    time.sleep(0.05)

def load_data():
    time.sleep(600)

def deadlock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def read_shard():
    time.sleep(600)

class Shards(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if rank == 1 and index > 3:
            read_shard()
        return torch.ones(1)

def save(number):
    where = os.path.join(os.environ["DTTUI_CHECKPOINT_DIR"], f"step-{number}")
    os.makedirs(where, exist_ok=True)
    open(os.path.join(where, "COMPLETE"), "w").close()

for number in range(int(os.environ.get("DTTUI_RESUME_FROM", "-0").rpartition("-")[2]), 20):
    step(number)
    if number == 10 and not again:
        save(number)
if again:
    os._exit(0)
if rank == 1:
    if how == "skip":
        load_data()
    if how == "lock":
        deadlock()
    if how == "op":
        dist.broadcast(torch.ones(8), 0)
    if how == "size":
        dist.all_reduce(torch.ones(0))
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
if how == "loader":
    for batch in DataLoader(Shards(), batch_size=2, num_workers=1):
        step(20)
if how == "long":
    while not os.path.exists("/tmp/evaluated"):
        time.sleep(0.1)
    while not os.path.exists("/tmp/over"):
        print("evaluated", flush=True)
        time.sleep(0.5)
    os._exit(0)
while True:
    step(21)
"""
WAITING = "2 of 3 ranks (0, 2) wait in all_reduce at train.py:12 (step)"
MISSING = (
    "rank 1 did not come to collective {number} of group default_pg, all_reduce [8] Float, in which ranks 0, 2 wait"
)
KINDS = {
    "skip": [MISSING.format(number=21), WAITING, "rank 1 on gpu2 is at train.py:18 (load_data)"],
    "lock": [MISSING.format(number=21), WAITING, "rank 1 on gpu2 is at train.py:23 (deadlock)"],
    "op": [
        "in collective 21 of group default_pg, rank 1 called broadcast [8] Float, and ranks 0, 2 called all_reduce [8]",
        WAITING,
        "rank 1 on gpu2 waits in broadcast at train.py:54",
    ],
    # An empty one: of two others that do not fit, gloo makes an error at once.
    "size": [
        "in collective 21 of group default_pg, rank 1 called all_reduce [0] Float, and ranks 0, 2 called all_reduce",
        "3 of 3 ranks (0–2) wait in all_reduce at train.py:12 (step)",
    ],
    "loader": [
        WAITING,
        "rank 1 on gpu2 is in DataLoader at train.py:60",
        "1 child process is at train.py:26 (read_shard)",
    ],
    "stop": [WAITING, "rank 1 on gpu2 is stopped by a signal (SIGSTOP) or a debugger"],
}
NO_MORE: Mapping[str, str] = {}
PY_SPY = f"{USER_PREFIX}/bin/py-spy"


@pytest.fixture
def lab(deployed: Lab) -> Iterator[Lab]:
    yield deployed
    for job in jobs.list_jobs():
        if not job.state.is_final:
            dttui("stop", job.job_id, "--force")


def launched(lab: Lab, home: Path, how: str, env: Mapping[str, str] = NO_MORE, **fields: Any) -> JobDirectory:
    """Launch three ranks on three hosts, of which rank 1 stands still after some steps."""
    source = home / "source"
    source.mkdir()
    (source / "train.py").write_text(SCRIPT)
    run = {"script": "train.py", "workdir": "source", "env": {"HOW": how, **env}}
    path = write_job(home, {"gpu1": 1, "gpu2": 1, "gpu3": 1}, framework="pytorch-ddp", run=run, **fields)
    submission = Submission(load_document(path).job, load_inventory(lab.inventory(home / "inventory.yaml")), home)
    plan = make_local_plan(submission)
    assert plan.errors == (), plan.errors
    return submit(submission, plan, expects_client=False)


def wait_for_steps(directory: JobDirectory, count: int = 20) -> None:
    """Wait until each rank has made the steps that they all make."""

    def have_made() -> bool:
        text = directory.metrics.read_text() if directory.metrics.exists() else ""
        reports = [json.loads(line) for line in text.splitlines()]
        assert not directory.is_over(), directory.read_events()[-1].message
        return text.count(f'"step": {count - 1}') >= 3 or len(reports) >= 3 * count

    wait_until(have_made, "the steps before it stands still", DEADLINE_S)


def wait_until_told(directory: JobDirectory, how: str) -> None:
    """Wait until `dttui stacks` says of each rank how it stands still."""
    wait_for_steps(directory)

    def is_told() -> bool:
        told = dttui_here("stacks", directory.job_id, "--short").stdout.splitlines()
        return all(any(line.startswith(words) for line in told) for words in KINDS[how])

    wait_until(is_told, f"{KINDS[how]}", 60)


@pytest.mark.parametrize("how", KINDS)
def test_each_rank_is_told_where_it_stands_and_the_one_that_the_others_wait_for_is_named(
    how: str, lab: Lab, tmp_path: Path
) -> None:
    """Within 120 s of the launch, as of any moment."""
    directory = launched(lab, tmp_path, how)
    wait_until_told(directory, how)
    document = result_of(dttui_here("stacks", directory.job_id, "--rank", "1", "--output", "json"))
    (node,) = document["nodes"]
    assert (node["node"], [rank["rank"] for rank in node["ranks"]]) == ("gpu2", [1])
    assert jobs.summarize(directory).state is JobState.RUNNING


@pytest.fixture
def without_py_spy(lab: Lab) -> Iterator[None]:
    """Hosts on which no py-spy is to be found."""
    for host in lab.values():
        host.run(["mount", "--bind", "/dev/null", PY_SPY])
    yield
    for host in lab.values():
        host.run(["umount", PY_SPY])


@pytest.mark.parametrize(
    ("how", "source"),
    [
        *((how, "faulthandler") for how in ("loader", "stop")),
        *(pytest.param(how, "faulthandler", marks=pytest.mark.thorough) for how in ("skip", "lock", "size")),
        pytest.param("lock", "torch", marks=pytest.mark.thorough),
        ("op", "torch"),
    ],
)
@pytest.mark.usefixtures("without_py_spy")
def test_without_py_spy_a_rank_is_asked_by_a_signal_and_by_torchs_server_where_its_script_keeps_that_for_itself(
    how: str, source: str, lab: Lab, tmp_path: Path
) -> None:
    """As with py-spy; of a rank that is stopped only that is told."""
    directory = launched(lab, tmp_path, how, {"KEEPS_SIGNAL": "1"} if source == "torch" else NO_MORE)
    wait_until_told(directory, how)
    document = result_of(dttui_here("stacks", directory.job_id, "--output", "json"))
    ranks = [rank for node in document["nodes"] for rank in node["ranks"]]
    asked = {rank["rank"]: rank["process"]["source"] for rank in ranks}
    assert asked == {0: source, 1: "" if how == "stop" else source, 2: source}
    if how == "loader":
        assert [child["source"] for child in ranks[1]["children"] if child["source"]] == [source]


def hangs(directory: JobDirectory) -> list[Event]:
    return directory.read_events(EventKind.HANG)


# Of the other kinds it is the same that is told, as the first test has it.
@pytest.mark.parametrize(
    "how",
    [how if how == "loader" else pytest.param(how, marks=pytest.mark.thorough) for how in KINDS],
)
def test_a_hang_is_told_with_where_each_rank_stands_and_the_job_starts_again_and_ends_well(
    how: str, lab: Lab, tmp_path: Path
) -> None:
    """With `hang_s: 12` and `on_hang: restart`: within 150 s the job has ended well; nothing is left.

    It goes on from the checkpoint that each host has on its own disk.
    """
    check_that_it_ends_well(how, lab, tmp_path, {})


@pytest.mark.parametrize(
    "how",
    [how if how == "skip" else pytest.param(how, marks=pytest.mark.thorough) for how in KINDS],
)
def test_a_job_that_hung_goes_on_from_a_directory_that_all_see(how: str, lab: Lab, tmp_path: Path) -> None:
    """As with own disks, within 150 s."""
    with shared_by([*lab.values()]):
        check_that_it_ends_well(how, lab, tmp_path, {"checkpoint": {"dir": SHARED, "shared": True}})


def check_that_it_ends_well(how: str, lab: Lab, tmp_path: Path, checkpoints: dict[str, Any]) -> None:
    """Check what is told of a hang, and that the attempt after it goes on where the newest checkpoint lies."""
    # 6 s were too few on a busy machine: an attempt of which nothing hung was told to hang, probably as ranks ended.
    recovery = {"max_restarts": 2, "hang_s": 12, "on_hang": "restart", **checkpoints}
    directory = launched(lab, tmp_path, how, recovery=recovery)
    wait_until(directory.is_over, "it to start again and end", 150)
    summary = jobs.summarize(directory)
    assert (summary.state, summary.attempts) == (JobState.SUCCEEDED, 2), directory.read_events()[-1].message
    told, *more = hangs(directory)
    assert not more, [(event.data, event.message) for event in more]
    for words in KINDS[how]:
        assert any(line.startswith(words) for line in told.data["said"]), told.data["said"]
    stopping, running = (
        [event.seq for event in directory.read_events(EventKind.JOB_STATE) if event.data["state"] == state]
        for state in ("STOPPING", "RUNNING")
    )
    assert running[0] < told.seq < stopping[0]  # Told before anything is ended.
    (restarting,) = (
        event for event in directory.read_events(EventKind.JOB_STATE) if event.data["state"] == "RESTARTING"
    )
    assert restarting.data["cause"] == "hang"
    # Of the whole grace period of 15 s: a rank that is stopped is woken to hear that it is to end.
    assert restarting.time - told.time < 14
    kept = json.loads((directory.path / told.data["file"]).read_text())
    assert [node["node"] for node in kept["nodes"]] == ["gpu1", "gpu2", "gpu3"]
    assert kept["groups"] == told.data["groups"]
    (restarted,) = directory.read_events(EventKind.RESTARTED)
    lost = 11 if how == "loader" else 10  # Which makes one more before it stands still.
    assert restarted.data["lost_steps"] == lost, restarted.message


def test_a_collective_in_which_a_rank_is_missing_for_too_long_costs_an_attempt(lab: Lab, tmp_path: Path) -> None:
    """With a `collective_timeout` of 5 s and `restart`: within 150 s the second attempt has ended well."""
    recovery = {"on_node_failure": "restart", "max_restarts": 1}
    communication = {"collective_timeout": "5s"}
    directory = launched(lab, tmp_path, "skip", recovery=recovery, communication=communication)
    wait_until(directory.is_over, "it to start again and end", 150)
    summary = jobs.summarize(directory)
    assert (summary.state, summary.attempts) == (JobState.SUCCEEDED, 2), directory.read_events()[-1].message
    (restarting,) = (
        event for event in directory.read_events(EventKind.JOB_STATE) if event.data["state"] == "RESTARTING"
    )
    assert restarting.data["cause"] == "collective-timeout", restarting.message
    assert not hangs(directory)


def test_a_long_phase_is_told_and_goes_on_to_a_good_end(lab: Lab, tmp_path: Path) -> None:
    """Without a line until that is told, with `hang_s: 6` and the default `on_hang`: the job ends well within 180 s."""
    for host in lab.values():
        host.run(["rm", "-f", "/tmp/evaluated", "/tmp/over"])
    directory = launched(lab, tmp_path, "long", recovery={"hang_s": 6})
    wait_until(lambda: hangs(directory), "the phase to be told", 60)
    told = jobs.summarize(directory).reason
    assert "no step and no line of any rank" in told, told
    assert "no step and no line of any rank" in dttui_here("status", directory.job_id).stdout
    assert "no step and no line of any rank" in dttui_here("diagnose", directory.job_id).stdout
    for host in lab.values():
        host.run(["touch", "/tmp/evaluated"])
    wait_until(lambda: len(hangs(directory)) > 1, "it to be taken back", 60)
    for host in lab.values():
        host.run(["touch", "/tmp/over"])
    wait_until(directory.is_over, "its end", 60)
    last = directory.read_events()[-1]
    assert jobs.summarize(directory).state is JobState.SUCCEEDED, last.message
    assert [event.data["severity"] for event in hangs(directory)] == ["warning", "info"]
    assert not any("FATAL" in path.read_text() for path in directory.path.glob("logs/0/*/*.err"))
