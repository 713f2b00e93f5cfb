"""Launches jobs one after another, each with a fault drawn by chance: `make soak`, or `python bench/soak.py --seed 7`.

Four isolated hosts on this machine, one a spare. Each launch draws how its job recovers, what breaks, where and when:
a rank, a launcher, a supervisor, a host, a link, an agent, a disk, the controller, the script itself, a person's
stop. Afterwards the job must have ended, its outcome must name a cause, its ranks must be gone on every host, and
what agents and controllers take must not have grown by more than `MOST_GROWTH` from the first third to the last. A
seed repeats what was drawn, though not to the millisecond what came of it. Needs what the tests' hosts need: root,
sshd, iproute2 and iptables.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dtagent.protocol.events import EventKind

from dttui import jobs
from dttui.jobs import JobDirectory
from tests.faults.leftovers import assert_nothing_runs
from tests.integration.headless import dttui, example_job, shell_job
from tests.integration.test_gpt_example import TINY
from tests.lab.fixtures import missing_requirement
from tests.lab.hosts import Lab
from tests.processes import processes_like

RUNNING_ON, SPARE = ("gpu1", "gpu2", "gpu3"), "gpu4"
STEADY = "gpu1"
"""A host whose agent no fault ends, so that what it takes can be told from launch to launch."""
JOB_DEADLINE_S = 240.0
STEPS = (
    'i=$((DTTUI_ATTEMPT * 20)); while [ $i -lt 60 ]; do i=$((i+1)); echo "{\\"step\\": $i}" >> "$DTTUI_METRICS"; '
    "sleep 0.1; done"
)
HANG = "a rank stands still for good"
FAULTY_SCRIPTS = {
    "the script exits with 3": "sleep 1; exit 3",
    "a module is missing": f"{sys.executable} -c 'import no_such_module_anywhere'",
}
MOST_GROWTH = 1.15
HANG_S = 6.0
JOINED_S = 60
"""By when ranks have to have formed their group; what breaks before that is known only then."""
DISK = "400m"
"""Of each host, so that it can be filled."""
CAUSES = {
    "a rank is killed": {"killed"},
    "its launcher is killed": {"killed"},
    "its supervisor is killed": {"supervisor-lost"},
    "its host goes off": {"node-lost", "host-unreachable"},
    "its host goes off and on": {"node-lost", "supervisor-lost", "host-unreachable"},
    "its link is cut for 25 s": {"node-lost", "self-fenced", "host-unreachable"},
    HANG: {"hang"},
    "its disk is full for 10 s": {"disk-full", "disk-was-full"},
    "the script exits with 3": {"exit-code"},
    "a module is missing": {"missing-module"},
}
"""What each fault may be told to be; all others break nothing."""


@dataclass
class Launch:
    """One launch: what was drawn, and what came of it."""

    number: int
    policy: str
    fault: str
    host: str
    after_s: float
    trains: bool
    state: str = ""
    causes: list[str | None] = field(default_factory=list)
    """Of each failure, the last one's last."""
    attempts: int = 0
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)
    agent_kib: int = 0
    agent_files: int = 0
    controller_kib: int = 0

    @property
    def may_recover(self) -> bool:
        """Whether another attempt is to follow what was broken, and can come to a good end."""
        stays_off = self.fault == "its host goes off" and self.policy == "restart"
        has_room = "disk-full" not in self.causes  # Of which no other attempt is made by itself.
        return self.policy != "stop" and self.fault not in FAULTY_SCRIPTS and not stays_off and has_room

    def __str__(self) -> str:
        how = f"{self.policy}, {'DDP' if self.trains else 'shell'}, {self.fault} ({self.host}, {self.after_s:.1f} s)"
        causes = ", ".join(map(str, self.causes)) or "no failure"
        told = "".join(f"\n     ✗ {line}" for line in self.complaints)
        return (
            f"{self.number:3d}  {how}: {self.state}, {self.attempts} attempts, {causes}; {self.seconds:.1f} s; agent "
            f"{self.agent_kib} KiB {self.agent_files} files, controller {self.controller_kib} KiB{told}"
        )


class Soak:
    """The hosts, and what can be done to a job on them."""

    def __init__(self, lab: Lab, directory: Path) -> None:
        self.lab = lab
        self.directory = directory
        self.inventory = lab.inventory(directory / "inventory.yaml")
        self.faults: dict[str, Callable[[JobDirectory, str], None]] = {
            "nothing": lambda _job, _host: None,
            "a rank is killed": lambda _job, host: self._kill(host, "RANK="),
            "its launcher is killed": lambda _job, host: self._kill(host, None),
            "its supervisor is killed": lambda _job, host: self._kill_like(host, "dtagent supervise"),
            "a rank stands still for 3 s": lambda _job, host: self._stand_still(host),
            "its agent is killed": lambda _job, host: self._kill_like(host, "dtagent daemon"),
            "its host goes off": lambda _job, host: self.lab[host].kill(),
            "its host goes off and on": lambda _job, host: self._off_and_on(host),
            "its link is cut for 2 s": lambda _job, host: self._cut(host, 2.0),
            "its link is cut for 25 s": lambda _job, host: self._cut(host, 25.0),
            HANG: lambda _job, host: self._stand_still(host, None),
            "its disk is full for 10 s": lambda _job, host: self._fill_the_disk(host),
            "the controller is killed": lambda job, _host: self._kill_controller(job),
            "a person stops it": lambda job, _host: self._stop(job),
            "a person stops it by force": lambda job, _host: self._stop(job, "--force"),
            **{name: lambda _job, _host: None for name in FAULTY_SCRIPTS},
        }

    def draw(self, number: int, chance: random.Random) -> Launch:
        """Draw a launch."""
        fault = chance.choice([*self.faults])
        hosts = RUNNING_ON[1:] if "agent" in fault or "host" in fault else RUNNING_ON
        return Launch(
            number,
            chance.choice(["restart", "replace"] if fault == HANG else ["stop", "restart", "replace"]),
            fault,
            chance.choice(hosts),
            chance.uniform(0.0, 4.0) if chance.random() < 0.7 else 0.0,
            trains=chance.random() < 0.25 and fault not in FAULTY_SCRIPTS,
        )

    def run(self, launch: Launch) -> None:
        """Launch, break what was drawn, wait for the end, and look what is left."""
        began = time.monotonic()
        job = self._launched(launch)
        self._wait_until_it_runs(job, launch)
        time.sleep(launch.after_s)
        if not job.is_over():
            self.faults[launch.fault](job, launch.host)
        self._wait_for_the_end(job, launch)
        launch.seconds = time.monotonic() - began
        self._judge(job, launch)
        self.lab.restore()
        self._look_what_is_left(job, launch)

    def _launched(self, launch: Launch) -> JobDirectory:
        place = self.directory / str(launch.number)
        place.mkdir()
        nodes = dict.fromkeys(RUNNING_ON[: 2 if launch.trains else 3], 1)
        if launch.trains:
            launch.host = launch.host if launch.host in nodes else "gpu2"
            path = example_job(place, nodes, "--steps", "60", "--checkpoint-every", "10", "--resume", *TINY)
        else:
            path = shell_job(place, nodes, FAULTY_SCRIPTS.get(launch.fault, STEPS))
        document = yaml.safe_load(path.read_text())
        document["distributed_training"].setdefault("communication", {})["rendezvous_timeout"] = f"{JOINED_S}s"
        document["distributed_training"]["recovery"] = {
            "on_node_failure": launch.policy,
            **({"heartbeat_s": 5, "max_restarts": 2} if launch.policy != "stop" else {}),
            **({"spares": [SPARE]} if launch.policy == "replace" else {}),
            **({"hang_s": HANG_S, "hang_first_s": JOINED_S, "on_hang": "restart"} if launch.fault == HANG else {}),
            "checkpoint": {"dir": f"/tmp/checkpoints-{launch.number}", "shared": True},
        }
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        done = dttui("--apply", path, "--inventory", self.inventory, "--detach", "--new", "--output", "json")
        if done.returncode not in (0, 100):
            launch.complaints.append(f"the launch ended with {done.returncode}: {done.stderr.strip()[-300:]}")
        return jobs.find(str(json.loads(done.stdout)["job_id"]))

    def _wait_until_it_runs(self, job: JobDirectory, launch: Launch) -> None:
        wanted = {"RUNNING", "STOPPING", "RESTARTING"} if launch.after_s else {"RENDEZVOUS", "RUNNING", "RESTARTING"}

        def has_come() -> bool:
            return job.is_over() or any(event.data.get("state") in wanted for event in job.read_events())

        if not _comes_true(has_come, JOB_DEADLINE_S):
            launch.complaints.append("it never ran")

    def _wait_for_the_end(self, job: JobDirectory, launch: Launch) -> None:
        deadline = time.monotonic() + JOB_DEADLINE_S
        while not job.is_over():
            for pid in processes_like("dttui.engine", str(job.path)):
                launch.controller_kib = max(launch.controller_kib, _status_kib(pid, "VmHWM"))
            if time.monotonic() > deadline:
                launch.complaints.append(f"not over after {JOB_DEADLINE_S:g} s: {jobs.summarize(job).state.value}")
                self.lab.restore()
                dttui("stop", job.job_id, "--force")
                return
            time.sleep(0.3)

    def _judge(self, job: JobDirectory, launch: Launch) -> None:
        events = job.read_events()
        outcomes = [event for event in events if event.kind is EventKind.OUTCOME]
        if len(outcomes) != 1:
            launch.complaints.append(f"{len(outcomes)} outcomes")
            return
        launch.state = str(outcomes[0].data["state"])
        launch.attempts = 1 + max((event.attempt or 0 for event in events), default=0)
        launch.causes = [event.data.get("cause") for event in events if event.data.get("state") == "RESTARTING"]
        if launch.state == "FAILED":
            diagnosis = json.loads(dttui("diagnose", job.job_id, "--output", "json").stdout)
            launch.causes.append(_cause_of(diagnosis))
        told = launch.causes
        if not CAUSES.get(launch.fault, set()).issuperset(told):
            launch.complaints.append(f"not what was broken: {outcomes[0].message}")
        wanted = {"FAILED" if told and not launch.may_recover else "SUCCEEDED"}
        if launch.fault.startswith("a person"):
            wanted.add("CANCELLED")
        if launch.state not in wanted:
            launch.complaints.append(f"{launch.state} is not what the policy says: {outcomes[0].message}")

    def _look_what_is_left(self, job: JobDirectory, launch: Launch) -> None:
        if "what" in job.read_events()[-1].message and "not known" in job.read_events()[-1].message:
            dttui("stop", job.job_id)  # As its outcome says, of a host that was off.
        try:
            assert_nothing_runs(job, self.lab, bridges_s=90.0)
        except AssertionError as error:
            launch.complaints.append(f"left behind: {error}")
        pids = [item.pid for item in self.lab[STEADY].processes() if "dtagent daemon" in item.cmdline]
        proc = Path(f"/proc/{self.lab[STEADY].pid}/root/proc")
        for pid in pids[:1]:
            launch.agent_kib = _status_kib(pid, "VmRSS", proc)
            launch.agent_files = len(os.listdir(proc / str(pid) / "fd"))

    def _kill(self, host: str, mark: str | None) -> None:
        """End a rank by SIGKILL, or what starts the ranks."""
        proc = Path(f"/proc/{self.lab[host].pid}/root/proc")
        for entry in sorted(proc.glob("[0-9]*"), key=lambda entry: int(entry.name)):
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if b"DTTUI_JOB_ID=" in environment and (mark is None or f"\0{mark}".encode() in environment):
                self.lab[host].run(["kill", "-KILL", entry.name], check=False)
                return

    def _kill_like(self, host: str, words: str) -> None:
        for item in self.lab[host].processes():
            if words in item.cmdline:
                self.lab[host].run(["kill", "-KILL", str(item.pid)], check=False)

    def _stand_still(self, host: str, seconds: float | None = 3.0) -> None:
        for item in self.lab[host].processes():
            if "train.py" in item.cmdline or "DTTUI_METRICS" in item.cmdline:
                self.lab[host].run(["kill", "-STOP", str(item.pid)], check=False)
                if seconds is not None:
                    time.sleep(seconds)
                    self.lab[host].run(["kill", "-CONT", str(item.pid)], check=False)
                return

    def _fill_the_disk(self, host: str) -> None:
        self.lab[host].run(["sh", "-c", "cat /dev/zero > /var/tmp/filling"], check=False)
        time.sleep(10.0)
        self.lab[host].run(["rm", "-f", "/var/tmp/filling"], check=False)

    def _off_and_on(self, host: str) -> None:
        self.lab[host].kill()
        time.sleep(2.0)
        self.lab[host].start()

    def _cut(self, host: str, seconds: float) -> None:
        self.lab[host].cut()
        time.sleep(seconds)
        self.lab[host].heal()

    def _kill_controller(self, job: JobDirectory) -> None:
        for pid in processes_like("dttui.engine", str(job.path)):
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        dttui("attach", job.job_id, "--output", "json", deadline_s=JOB_DEADLINE_S)

    def _stop(self, job: JobDirectory, *options: str) -> None:
        dttui("stop", job.job_id, *options, deadline_s=JOB_DEADLINE_S)


def _cause_of(diagnosis: Any) -> str | None:
    found = diagnosis.get("cause")
    return found.get("code") if isinstance(found, dict) else found


def _comes_true(is_so: Callable[[], bool], deadline_s: float) -> bool:
    deadline = time.monotonic() + deadline_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _status_kib(pid: int, key: str, proc: Path = Path("/proc")) -> int:
    try:
        lines = (proc / str(pid) / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)


def summary(launches: list[Launch]) -> tuple[list[str], bool]:
    """Return what the whole run comes to, and whether all is as it should be."""
    third = max(1, len(launches) // 3)
    is_good = not any(launch.complaints for launch in launches)
    lines = [f"{count:3d} × {state}" for state, count in Counter(item.state for item in launches).most_common()]
    for what, of in (
        ("agent, KiB", lambda item: item.agent_kib),
        ("agent, open files", lambda item: item.agent_files),
        ("controller at most, KiB", lambda item: item.controller_kib),
    ):
        figures = [of(item) for item in launches if of(item)]
        if figures:
            first, last = statistics.median(figures[:third]), statistics.median(figures[-third:])
            told = f"{what}: median of the first third {first:g}, of the last {last:g} ({last / first:.2f} ×)"
            has_grown = last > MOST_GROWTH * first
            lines.append(f"{told}, ✗ more than {MOST_GROWTH:g} ×" if has_grown else told)
            is_good = is_good and not has_grown
    return lines, is_good


def lab_of_four() -> Lab:
    """Return the hosts, not yet booted."""
    return Lab((*RUNNING_ON, SPARE), user_python=Path(sys.prefix), disk_size=DISK)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=60, help="how many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="what the faults are drawn by")
    options = parser.parse_args()
    if missing := missing_requirement():
        print(f"these hosts {missing}", file=sys.stderr)
        return 1
    print(f"seed {options.seed}, {options.launches} launches", flush=True)
    chance, launches = random.Random(options.seed), []
    with tempfile.TemporaryDirectory() as name, lab_of_four() as lab:
        for kind in ("STATE", "CACHE", "CONFIG"):
            os.environ[f"XDG_{kind}_HOME"] = str(Path(name) / kind)
        soak = Soak(lab, Path(name))
        done = dttui("agents", "deploy", "--inventory", soak.inventory)
        if done.returncode:
            print(done.stderr, file=sys.stderr)
            return 1
        for number in range(1, options.launches + 1):
            launch = soak.draw(number, chance)
            soak.run(launch)
            launches.append(launch)
            print(launch, flush=True)
    lines, is_good = summary(launches)
    print(*lines, sep="\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
