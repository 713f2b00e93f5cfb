"""A training whose checkpoints lie on the disks of its hosts, which copy them to each other, after faults.

The first rank alone writes, on a disk of its host's own; the agents keep a copy of the newest one elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from dtagent.locations import AttemptFiles
from dtagent.protocol.events import Event

from dttui.jobs import JobDirectory
from dttui.jobs.course import read_reports
from dttui.spec.failure_causes import kind_of
from tests.faults.recovering import comebacks, ended, on_hosts, processes_of, restarts, submitted
from tests.faults.recovering import lab as lab
from tests.faults.shell_training import acts_no_more, root_of
from tests.faults.test_amid_recovery import flip
from tests.faults.test_copies import digest, kept_on_own_disks
from tests.integration.headless import EXAMPLE, example_job
from tests.integration.slow_steps import slow_down
from tests.integration.test_gpt_example import TINY, environment
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.shared import SHARED, share, show, unshare_from
from tests.waiting import wait_until

NO_TORCH = "torch is not installed: pip install .[torch]"
pytestmark = [
    pytest.mark.lab,
    pytest.mark.torch,
    pytest.mark.timeout(420),
    pytest.mark.xdist_group("lab of recovery"),
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason=NO_TORCH),
]
DEADLINE_S = 120.0
STEPS, EVERY = 600, 20
ARGS = ["--steps", str(STEPS), "--checkpoint-every", str(EVERY), "--keep-checkpoints", str(STEPS), "--resume", *TINY]


@dataclass(frozen=True)
class Whole:
    """A training that nothing has disturbed."""

    losses: dict[int, float]
    """Step → loss."""
    state: str
    """Hash of what it has come to."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The same training, by torchrun alone."""
    place = tmp_path_factory.mktemp("whole")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=0"]
    command = [sys.executable, *launcher, "train.py", *ARGS, "--checkpoint-dir", str(place / "kept")]
    done = subprocess.run(
        command, cwd=EXAMPLE, env=environment(place), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = map(json.loads, (place / "metrics.jsonl").read_text().splitlines())
    losses = {line["step"]: line["loss"] for line in lines if line["rank"] == 0}
    return Whole(losses, state_of((place / f"kept/step-{STEPS:08}/state.pt").read_bytes()))


def state_of(data: bytes) -> str:
    return digest(importlib.import_module("torch"), data)


class Training:
    """The example on two hosts, with a disk of each one's own.

    Args:
        lab: its hosts.
        tmp_path: where its files are.
        faults: so many are done to it, each to an attempt that takes its time.
        shared: whether both see one directory instead.
    """

    def __init__(self, lab: Lab, tmp_path: Path, faults: int, *, shared: bool = False) -> None:
        self.shared, self.place = shared, f"{SHARED if shared else '/var/tmp'}/own-{tmp_path.name[-24:]}"
        self.lab, self.first, self.second = lab, lab["gpu1"], lab["gpu2"]
        path = example_job(tmp_path, {"gpu1": 1, "gpu2": 1}, *ARGS)
        slow_down(tmp_path / "gpt/train.py", faults)
        # Longer than a busy machine takes to start a daemon: till then the host is silent, and may not be lost.
        policy = kept_on_own_disks(self.place) | {"on_node_failure": "restart", "spares": [], "heartbeat_s": 40}
        if shared:
            policy["checkpoint"] = {"dir": self.place, "shared": True}
        self.directory: JobDirectory = submitted(path, on_hosts(lab, tmp_path), **policy, max_restarts=5)

    def own(self, attempt: int) -> Path:
        """Return where the first host has what an attempt writes, as it is seen here."""
        return seen(self.first, self.place) / (f"attempt-{attempt}" if attempt else "")

    def steps(self, attempt: int) -> list[int]:
        """Return the steps of an attempt's complete checkpoints, the newest first."""
        return sorted((int(mark.parent.name[5:]) for mark in self.own(attempt).glob("step-*/COMPLETE")), reverse=True)

    def is_copied(self, attempt: int, step: int) -> bool:
        """Whether the second host has been told to have a copy of a step, or of a later one."""
        told = (event for event in self.directory.read_events() if event.attempt == attempt)
        return any(event.data["step"] >= step for event in told if event.data.get("target") == "gpu2")

    def wait_for_copies(self, attempt: int) -> None:
        """Wait until an attempt has two checkpoints, and the second host a copy of one, where it sees none."""

        def is_so() -> bool:
            assert not self.directory.is_over(), said(self.directory)
            return len(self.steps(attempt)) >= 2 and (self.shared or self.is_copied(attempt, 1))

        try:
            wait_until(is_so, f"copies of attempt {attempt}", DEADLINE_S)
        except AssertionError as error:
            raise AssertionError(said(self.directory)) from error

    def files(self, host: Host, attempt: int) -> AttemptFiles:
        return AttemptFiles.of(root_of(host), self.directory.job_id, attempt)

    def halt(self, attempt: int) -> int:
        """Have the first rank write no more, and its newest checkpoint copied; return that one's step."""
        rank = int(json.loads((self.files(self.first, attempt).ranks / "0.json").read_text())["pid"])
        self.first.run(["kill", "-STOP", str(rank)])
        wait_until(lambda: acts_no_more(self.first, rank), "it to halt", DEADLINE_S)
        step = self.steps(attempt)[0]
        wait_until(lambda: self.is_copied(attempt, step), f"a copy of step {step}", DEADLINE_S)
        return step

    def kill_rank(self, attempt: int) -> None:
        rank = json.loads((self.files(self.first, attempt).ranks / "0.json").read_text())["pid"]
        self.first.run(["kill", "-KILL", str(rank)])

    def ended(self) -> list[Event]:
        events = ended(self.directory, 300)
        assert events[-1].data["state"] == "SUCCEEDED", said(self.directory)
        return events

    def check(self, whole: Whole, begun: Sequence[int]) -> None:
        """Look that each attempt went on from a step as an undisturbed training would, and all ended as that one did.

        Args:
            whole: that one.
            begun: step that each attempt began behind.
        """
        events = self.directory.read_events()
        assert [event.data["step"] for event in events if event.data.get("resume_from")] == list(begun[1:])
        assert len(comebacks(events)) == len(restarts(events)) == len(begun) - 1
        made: dict[tuple[int, int], list[tuple[int | None, float | None]]] = defaultdict(list)
        for attempt, report in read_reports(self.directory.metrics):
            if not report.is_of_payload:
                made[attempt, report.rank].append((report.step, report.loss))
        assert sorted(made) == [(attempt, rank) for attempt in range(len(begun)) for rank in (0, 1)]
        for (attempt, rank), told in made.items():
            first, last = begun[attempt] + 1, begun[attempt] + len(told)
            expected = [(step, whole.losses[step]) for step in range(first, last + 1)]
            assert told == expected, (attempt, rank)
            assert attempt < len(begun) - 1 or last == STEPS
        assert state_of((self.own(len(begun) - 1) / f"step-{STEPS:08}/state.pt").read_bytes()) == whole.state
        for host in (self.first, self.second):
            left = functools.partial(processes_of, self.lab, host.name, self.directory)
            wait_until(lambda left=left: not left(), f"nothing to be left on {host.name}")  # type: ignore[misc]
            kept = host.run(["find", self.place, "-path", "*.dttui-copies*", "-ls"]).stdout.decode()
            assert not kept, "\n".join([host.name, kept, *said(self.directory)])


def seen(host: Host, path: str) -> Path:
    """Return a path of a host as this machine sees it."""
    return Path(f"/proc/{host.pid}/root{path}")


def said(directory: JobDirectory) -> list[str]:
    return [f"{event.kind}: {event.message}" for event in directory.read_events()][-15:]


def kill_launcher(training: Training) -> None:
    """Kill torchrun on the second host, and not what it has forked."""
    supervisor = supervisor_of(training, training.second)
    mark = f"{training.directory.job_id}/0/payload/torchrun.py"
    found = [item.pid for item in training.second.processes() if mark in item.cmdline and item.pid != supervisor]
    (pid,) = (pid for pid in found if parent(training.second, pid) not in found)
    training.second.run(["kill", "-KILL", str(pid)])


def kill_supervisor(training: Training) -> None:
    """Kill that of the host whose disk has the checkpoints."""
    training.first.run(["kill", "-KILL", str(supervisor_of(training, training.first))])


def supervisor_of(training: Training, host: Host) -> int:
    return int(json.loads(training.files(host, 0).supervisor.read_text())["pid"])


def parent(host: Host, pid: int) -> int:
    """Return the pid of a process's parent, as the host counts them."""
    text = Path(f"/proc/{host.pid}/root/proc/{pid}/stat").read_text()
    return int(text.rpartition(") ")[2].split()[1])


@pytest.mark.parametrize("fault", [kill_launcher, kill_supervisor], ids=["torchrun", "supervisor"])
def test_a_training_goes_on_from_its_own_disks_as_if_nothing_had_been(
    fault: Callable[[Training], None], lab: Lab, whole: Whole, tmp_path: Path
) -> None:
    """Over within 400 s: torchrun killed on a host that has copies alone; the supervisor of the one that writes."""
    training = Training(lab, tmp_path, 1)
    training.wait_for_copies(0)
    fault(training)
    (restart,) = restarts(training.ended())
    assert kind_of(restart.data["cause"]).is_retried, restart.message
    training.check(whole, [0, training.steps(0)[0]])


@pytest.fixture
def shared(lab: Lab) -> Iterator[None]:
    """A directory that both hosts see."""
    hosts = [lab["gpu1"], lab["gpu2"]]
    share(hosts)
    yield
    for host in hosts:
        with contextlib.suppress(AssertionError):
            unshare_from(host)


def turn_off(training: Training) -> None:
    """Switch the master's host off, and on once it is given up."""
    training.first.kill()
    wait_until(lambda: restarts(training.directory.read_events()), "the restart to be promised", DEADLINE_S)
    training.first.start()
    show(training.second, training.first)


@pytest.mark.thorough
@pytest.mark.parametrize("fault", [kill_launcher, turn_off], ids=["torchrun", "master's host"])
def test_a_training_goes_on_from_a_directory_that_all_see_as_if_nothing_had_been(
    fault: Callable[[Training], None], lab: Lab, shared: None, whole: Whole, tmp_path: Path
) -> None:
    """Over within 400 s."""
    training = Training(lab, tmp_path, 1, shared=True)
    training.wait_for_copies(0)
    fault(training)
    (restart,) = restarts(training.ended())
    assert kind_of(restart.data["cause"]).is_retried, restart.message
    training.check(whole, [0, training.steps(0)[0]])


def rot(path: Path) -> None:
    """Change a bit as a disk does: nothing else of the file tells of it."""
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_where_bits_have_changed_a_copy_is_trained_on_from_and_where_its_have_too_the_checkpoint_before(
    lab: Lab, whole: Whole, tmp_path: Path
) -> None:
    """Over within 400 s: on the disk of the host that writes; then on both, that of the copy too."""
    training = Training(lab, tmp_path, 2)
    training.wait_for_copies(0)
    copied = training.halt(0)
    state = f"step-{copied:08}/state.pt"
    rot(training.own(0) / state)
    training.kill_rank(0)

    training.wait_for_copies(1)
    newest = training.halt(1)
    state = f"step-{newest:08}/state.pt"
    store = seen(training.second, f"{training.place}/attempt-1/.dttui-copies/{training.directory.job_id}")
    (copy,) = store.glob(f"rank-0/*/{state}")
    rot(training.own(1) / state)
    rot(copy)
    before = training.steps(1)[1]
    training.kill_rank(1)
    events = training.ended()
    training.check(whole, [0, copied, before])
    passed = [event for event in events if event.data.get("code") == "checkpoint-passed"]
    assert [event.message.partition(" is passed over: ")[0].rpartition(" of ")[2] for event in passed] == [
        "gpu1",
        "gpu2",
        "gpu1",
    ]
    why = "state.pt has changed since it was written: its checksum does not hold"
    assert all(event.message.endswith(why) for event in passed)
