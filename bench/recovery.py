"""Times a recovery, from the kill of a rank to the last rank's first new step: `python bench/recovery.py`.

Three isolated hosts on this machine, one rank each, gloo. `recovery: {on_node_failure: restart}` takes turns with
torchrun's own `--max-restarts`, begun by one `ssh` a host and meeting by c10d: the same script, which tells the clock
of each step in a file of its host. Figures are medians. dttui's new attempt has another port, a preflight of its
own and hosts proven clean; torchrun's agents stay and start their ranks anew. Needs what the tests' hosts need: root,
sshd, iproute2 and iptables. Parts by name: `python bench/recovery.py cold --rounds 3`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launch import DEADLINE_S, NAMES, Bench, in_turns

from tests.lab.fixtures import missing_requirement
from tests.lab.hosts import Lab
from tests.lab.interpreter import USER_PYTHON

PARTS = ("cold", "warm_start")
TARGETS = {"cold": None, "warm_start": 0.6}
MARKS = "/srv/bench/marks"
STEPS_BEFORE = 20
"""Steps that each rank has made before one of them is killed."""
SCRIPT = f"""\
import json
import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
reports = os.environ.get("DTTUI_METRICS", os.devnull)
with open("{MARKS}", "a", buffering=1) as marks, open(reports, "a", buffering=1) as metrics:
    for step in range(100000):
        dist.all_reduce(torch.ones(1))
        print(os.getpid(), step, time.monotonic(), file=marks)
        print(json.dumps(dict(step=step)), file=metrics)
        time.sleep(0.02)
"""


class Recoveries:
    """The hosts, and the two that bring a job back."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.phases: dict[str, list[float]] = {}
        """Seconds from the kill to each state of the job, of each recovery by dttui."""

    def by_dttui(self, *, warm_start: bool) -> float:
        """Launch a job that is restarted, kill a rank, and return the seconds to the last rank's first new step."""
        with self._marked() as recovered_in:
            launched = self.bench.dttui(
                "--apply", str(self.bench.jobs[warm_start]), "--inventory", str(self.bench.inventory), "--detach",
                "--new", "--output", "json",
            )  # fmt: skip
            job = json.loads(launched)["job_id"]
            try:
                seconds, killed_at = recovered_in()
                self._note(self.bench.dttui("events", job, "--output", "jsonl"), killed_at)
            finally:
                self.bench.dttui("stop", job)
        return seconds

    def by_torchrun(self) -> float:
        """Do the same with torchrun's own restart."""
        port, run_id = random.randint(29500, 29999), str(random.randint(0, 10**9))
        master = self.bench.lab[NAMES[0]].address
        started = []
        with self._marked() as recovered_in:
            try:
                for host in self.bench.lab.values():
                    words = [
                        "env", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1", USER_PYTHON, "-m", "torch.distributed.run",
                        f"--nnodes={len(NAMES)}", "--nproc-per-node=1", "--max-restarts=3", "--rdzv-backend=c10d",
                        f"--rdzv-endpoint={master}:{port}", f"--rdzv-id={run_id}", "train.py",
                    ]  # fmt: skip
                    line = f"cd /srv/bench && {shlex.join(words)}"
                    argv = ["ssh", "-F", str(self.bench.ssh_config), host.address, line]
                    started.append(
                        subprocess.Popen(
                            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                        )
                    )
                seconds, _ = recovered_in()
            finally:
                for host in self.bench.lab.values():
                    host.run(["pkill", "-KILL", "-f", "torch.distributed.run|train.py"], check=False)
                for process in started:
                    process.communicate(timeout=DEADLINE_S)
        return seconds

    @contextlib.contextmanager
    def _marked(self) -> Iterator[Callable[[], tuple[float, float]]]:
        """Take the marks of before away; give what kills a rank once all make steps, and tells what that cost."""
        for host in self.bench.lab.values():
            host.run(["rm", "-f", MARKS])

        def recovered_in() -> tuple[float, float]:
            self._until(lambda steps: all(len(made) >= STEPS_BEFORE for made in steps), "steps")
            killed = self._steps()
            pids = [made[-1][0] for made in killed]
            killed_at, clock = time.monotonic(), time.time()
            self.bench.lab[NAMES[1]].run(["kill", "-KILL", str(pids[1])])

            def new(steps: list[list[tuple[int, float]]]) -> list[float]:
                return [
                    next((at for pid, at in made if pid != old and at > killed_at), 0.0)
                    for made, old in zip(steps, pids, strict=True)
                ]

            self._until(lambda steps: all(new(steps)), "new steps")
            return max(new(self._steps())) - killed_at, clock

        yield recovered_in

    def _steps(self) -> list[list[tuple[int, float]]]:
        """Return, for each host, the process and the clock of each step that its rank has made."""
        told = [host.run(["cat", MARKS], check=False).stdout for host in self.bench.lab.values()]
        rows = [[line.split() for line in text.splitlines()] for text in told]
        return [[(int(row[0]), float(row[2])) for row in made if len(row) == 3] for made in rows]

    def _until(self, is_so: Callable[[list[list[tuple[int, float]]]], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so(self._steps()):
            if time.monotonic() > deadline:
                raise SystemExit(f"no {what} within {DEADLINE_S:g} s")
            time.sleep(0.3)

    def _note(self, told: str, killed_at: float) -> None:
        for event in map(json.loads, told.splitlines()):
            state = event.get("data", {}).get("state")
            if event["kind"] == "job_state" and event["time"] > killed_at:
                self.phases.setdefault(state, []).append(event["time"] - killed_at)


def compare(recoveries: Recoveries, part: str, rounds: int) -> None:
    """Print medians of both sides and their ratio."""
    recoveries.phases.clear()
    ours, theirs = in_turns(
        lambda: recoveries.by_dttui(warm_start=part == "warm_start"), recoveries.by_torchrun, rounds
    )
    ratio = statistics.median(ours) / statistics.median(theirs)
    target = TARGETS[part]
    print(
        f"  {part:<12} dttui {statistics.median(ours):5.2f} s ({min(ours):.2f}–{max(ours):.2f})   torchrun "
        f"{statistics.median(theirs):5.2f} s ({min(theirs):.2f}–{max(theirs):.2f})   ratio {ratio:.2f}"
        + (f"   (at most {target:g})" if target else ""),
        flush=True,
    )
    told = ", ".join(
        f"{state} {statistics.median(seconds[1:] or seconds):.2f} s" for state, seconds in recoveries.phases.items()
    )
    print(f"    of dttui, from the kill to the state: {told}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which comparisons; all of them without")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of each comparison")
    options = parser.parse_args()
    if missing := missing_requirement():
        print(f"these hosts {missing}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as name, Lab(NAMES, user_python=Path(sys.prefix)) as lab:
        bench = Bench(lab, Path(name), SCRIPT, recovery={"on_node_failure": "restart"})
        print(f"{len(NAMES)} hosts × 1 rank, {os.cpu_count()} CPUs for all of them; {options.rounds} pairs", flush=True)
        for part in options.parts or PARTS:
            compare(Recoveries(bench), part, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
