"""Times a launch, from the command to the first all-reduce, against torchrun by hand: `python bench/launch.py`.

Three isolated hosts on this machine, one rank each, gloo, preflight on. By hand means the same static torchrun
commands, one `ssh` a host, all at once. Both sides run the same script, which prints the clock once its first
all-reduce is done, and take turns; figures are medians, beside what issue 5 asks for. Warm: agents run and hold the
files. Cold: no agent runs, and the hosts hold no file. Needs what the tests' hosts need: root, sshd, iproute2 and
iptables. Parts by name: `python bench/launch.py warm --rounds 3`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.lab.fixtures import missing_requirement
from tests.lab.hosts import Lab
from tests.lab.interpreter import USER_PYTHON

PARTS = ("warm", "cold", "warm_start")
TARGETS = {"warm": 1.15, "cold": 1.3, "warm_start": 0.7}
STATES = ("PREFLIGHT", "LAUNCHING", "RENDEZVOUS")
NAMES = ("gpu1", "gpu2", "gpu3")
DEADLINE_S = 120.0
MARK = "first all-reduce at"
AGENT_ROOT = "/var/tmp/dtagent-0"
SCRIPT = f'''\
import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
print("{MARK}", time.monotonic(), int(value), flush=True)
dist.barrier()
os._exit(0)  # gloo now and then aborts when it is taken down
'''
SSH_CONFIG = """\
Host *
User root
IdentityFile {key}
IdentitiesOnly yes
UserKnownHostsFile {known_hosts}
StrictHostKeyChecking yes
BatchMode yes
"""


class Bench:
    """The hosts with agents, and the two ways to launch on them.

    Args:
        lab: the hosts.
        directory: for what is needed on this machine.
        script: what each rank runs.
        **sections: of the job's file, besides those that a launch needs.
    """

    def __init__(self, lab: Lab, directory: Path, script: str, **sections: Any) -> None:
        self.lab = lab
        self.script = script
        self.sections = sections
        self.directory = directory
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            **{f"XDG_{kind}_HOME": str(directory / kind) for kind in ("STATE", "CACHE", "CONFIG")},
            "PYTHONPYCACHEPREFIX": str(directory / "bytecode"),  # A checkout need not have it, as an installation does.
        }
        self.inventory = lab.inventory(directory / "inventory.yaml")
        self.ssh_config = directory / "ssh_config"
        self.ssh_config.write_text(SSH_CONFIG.format(key=lab.client_key, known_hosts=lab.known_hosts))
        self.jobs = {warm_start: self._job(warm_start=warm_start) for warm_start in (False, True)}
        for host in lab.values():
            host.run(["mkdir", "-p", "/srv/bench"])
            host.run(["sh", "-c", "cat > /srv/bench/train.py"], input=script.encode())
            # The host's copy of this machine's, which may do work at each login, and wait for a lock to do it.
            host.run(["sh", "-c", ": > /root/.bashrc"])
        self.dttui("agents", "deploy", "--inventory", str(self.inventory))
        self.phases: dict[str, list[float]] = {}
        """Seconds from the command to each state of the job, of each launch."""
        self.pushed: list[int] = []
        """Bytes of files that each launch had to send."""

    def dttui(self, *arguments: str) -> str:
        """Run dttui to its end; return its stdout."""
        done = subprocess.run(
            [sys.executable, "-m", "dttui", *arguments], env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"dttui {shlex.join(arguments)}: {done.stderr}{done.stdout[-2000:]}")
        return done.stdout

    def by_apply(self, *, warm_start: bool = False) -> float:
        """Launch by `--apply`; return the seconds to the last rank's first all-reduce."""
        began, at = time.monotonic(), time.time()
        told = self.dttui(
            "--apply", str(self.jobs[warm_start]), "--inventory", str(self.inventory), "--output", "jsonl"
        )
        events = [json.loads(line) for line in told.splitlines()]
        sent = [event["data"]["sent_bytes"] for event in events if "files" in event.get("data", {})]
        self.pushed.append(sent[-1])
        entered: dict[str, float] = {}
        for event in events:
            entered.setdefault(event.get("data", {}).get("state"), event["time"] - at)
        for state in STATES:
            self.phases.setdefault(state, []).append(entered[state])
        newest = max((self.directory / "STATE/dttui/jobs").iterdir(), key=lambda path: path.stat().st_mtime)
        return self._last_mark("".join(path.read_text() for path in newest.glob("logs/0/*/*.out"))) - began

    def by_hand(self) -> float:
        """Launch by one ssh a host; return the same."""
        port = random.randint(29500, 29999)
        began = time.monotonic()
        started = []
        for rank, host in enumerate(self.lab.values()):
            master = self.lab[NAMES[0]].address
            words = [USER_PYTHON, "-m", "torch.distributed.run", f"--nnodes={len(NAMES)}", "--nproc-per-node=1",
                     f"--node-rank={rank}", f"--master-addr={master}", f"--master-port={port}", "train.py"]  # fmt: skip
            argv = ["ssh", "-F", str(self.ssh_config), host.address, f"cd /srv/bench && {shlex.join(words)}"]
            started.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
        told = "".join(process.communicate(timeout=DEADLINE_S)[0] for process in started)
        return self._last_mark(told) - began

    def cool_down(self) -> None:
        """End every agent, and take away what launches before have sent there."""
        for host in self.lab.values():
            host.run(
                ["sh", "-c", f"pkill -f 'dtagent daemon' ; rm -rf {AGENT_ROOT}/store {AGENT_ROOT}/jobs"], check=False
            )

    def _job(self, *, warm_start: bool) -> Path:
        place = self.directory / f"job-{warm_start}"
        (place / "work").mkdir(parents=True)
        (place / "work/train.py").write_text(self.script)
        run: dict[str, Any] = {"script": "train.py", "workdir": "work"}
        job = {
            "name": "bench", "framework": "pytorch-ddp", "dataset": "none",
            "run": {**run, "warm_start": True} if warm_start else run,
            "cluster": {"nodes": [{"id": name} for name in NAMES]}, **self.sections,
        }  # fmt: skip
        (place / "job.yaml").write_text(yaml.safe_dump({"distributed_training": job}))
        return place / "job.yaml"

    def _last_mark(self, told: str) -> float:
        marks = [line.split() for line in told.splitlines() if line.startswith(MARK)]
        if [int(words[-1]) for words in marks] != [len(NAMES)] * len(NAMES):
            raise SystemExit(f"not every rank came to its all-reduce:\n{told}")
        return max(float(words[-2]) for words in marks)


def in_turns(ours: Callable[[], float], theirs: Callable[[], float], rounds: int) -> tuple[list[float], list[float]]:
    """Return the figures of two sides that take turns, after one round that does not count."""
    turns: list[tuple[list[float], Callable[[], float]]] = [([], ours), ([], theirs)]
    for number in range(rounds + 1):
        for figures, turn in turns if number % 2 else reversed(turns):
            seconds = turn()
            if number:
                figures.append(seconds)
    return turns[0][0], turns[1][0]


def compare(bench: Bench, part: str, rounds: int) -> None:
    """Print medians of both sides and their ratio."""
    bench.phases.clear()

    def apply() -> float:
        if part == "cold":
            bench.cool_down()
        return bench.by_apply(warm_start=part == "warm_start")

    ours, theirs = in_turns(apply, bench.by_hand, rounds)
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(
        f"  {part:<12} --apply {statistics.median(ours):5.2f} s ({min(ours):.2f}–{max(ours):.2f})   by hand "
        f"{statistics.median(theirs):5.2f} s ({min(theirs):.2f}–{max(theirs):.2f})   ratio {ratio:.2f}, of pairs "
        f"{min(ratios):.2f}–{max(ratios):.2f}   (at most {TARGETS[part]:g})",
        flush=True,
    )
    told = ", ".join(f"{state} {statistics.median(seconds[1:]):.2f} s" for state, seconds in bench.phases.items())
    print(f"    of --apply, from the command to the state: {told}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which comparisons; all of them without")
    parser.add_argument("--rounds", type=int, default=6, help="pairs of each comparison")
    options = parser.parse_args()
    if missing := missing_requirement():
        print(f"these hosts {missing}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name, Lab(NAMES, user_python=Path(sys.prefix)) as lab:
        bench = Bench(lab, Path(name), SCRIPT)
        print(f"{len(NAMES)} hosts × 1 rank, {os.cpu_count()} CPUs for all of them; {options.rounds} pairs", flush=True)
        for part in options.parts or PARTS:
            compare(bench, part, options.rounds)
            if part == "warm":
                row = "pushed no file bytes" if not any(bench.pushed[1:]) else f"pushed {bench.pushed}"
                print(f"  launches with an unchanged workdir, after the first, {row}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
