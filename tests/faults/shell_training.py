"""A training of shell lines on isolated hosts whose every step shows in a sum: what it went on from, and made twice."""

from __future__ import annotations

import functools
import json
import re
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dtagent.locations import AttemptFiles
from dtagent.protocol.events import Event, EventKind

from dttui.jobs import JobDirectory
from tests.faults.recovering import comebacks, launched, on_hosts, processes_of, restarts
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.shared import SHARED, seen_here
from tests.waiting import wait_until

DEADLINE_S = 90.0
EVERY = 10
KEPT = f"{SHARED}/kept"
CHECKED = "check() { echo $(( ($1 * 7919 + $2) % 10007 )); }; next() { echo $(( ($2 * 31 + $1) % 1000003 )); }"
TRAINS = f"""
{CHECKED}
until [ -e {SHARED}/here ]; do sleep 0.1; done
step=0; sum=7
if [ -n "$DTTUI_RESUME_FROM" ]; then
  set -- $(tr -dc '0-9 ' < "$DTTUI_RESUME_FROM/state.json")
  [ "$(check $1 $2)" = "$3" ] || {{ echo "the state does not add up"; exit 1; }}
  step=$1; sum=$2
fi
echo "from $step"
until [ -e {SHARED}/go ]; do
  step=$((step+1)); sum=$(next $step $sum)
  echo "$step $sum"; echo "{{\\"step\\": $step}}" >> "$DTTUI_METRICS"
  if [ "$RANK" = 0 ] && [ $((step % {EVERY})) = 0 ]; then
    d=$DTTUI_CHECKPOINT_DIR/step-$step; mkdir -p "$d" &&
    echo "{{\\"step\\": $step, \\"sum\\": $sum, \\"check\\": $(check $step $sum)}}" | cat > "$d/state.json" &&
    : > "$d/COMPLETE" || exit 1
  fi
  sleep 0.03
done
"""
"""Each rank adds up all its steps; the first writes what it has every so many, and all begin with that."""
EACH_SAVES = TRAINS.replace('"$RANK" = 0', '"$LOCAL_RANK" = 0')
"""The same, but that the first rank of each host writes, for those there."""


class Kept(NamedTuple):
    """A checkpoint."""

    attempt: int
    step: int
    path: Path
    """As it is seen here."""


class Training:
    """A job that makes such steps until it is let go.

    Args:
        lab: its hosts.
        tmp_path: where its files are.
        nodes: host → how many ranks it has there.
        command: what each rank does.
        shared: whether the hosts see one directory; else each has one of its own there.
        recovery: more of that section.
    """

    def __init__(
        self,
        lab: Lab,
        tmp_path: Path,
        nodes: dict[str, int],
        command: str = TRAINS,
        *,
        shared: bool = True,
        **recovery: Any,
    ) -> None:
        self.lab, self.shared = lab, shared
        self.hosts = [lab[name] for name in nodes]
        self.ranks = [name for name, count in nodes.items() for _ in range(count)]
        self.touch("here")
        policy = {
            "on_node_failure": "restart",
            "heartbeat_s": 5,
            "checkpoint": {"dir": KEPT, "shared": shared},
        } | recovery
        self.directory: JobDirectory = launched(tmp_path, on_hosts(lab, tmp_path), nodes, command, **policy)

    def touch(self, name: str) -> None:
        """Make a file where each host sees it."""
        for host in self.hosts:
            (seen_here(host) / name).touch()

    def events(self) -> list[Event]:
        return self.directory.read_events()

    def kept(self, place: int = 0) -> list[Kept]:
        """Return the complete checkpoints that the first host sees, or another, the newest first."""
        found = []
        for mark in (seen_here(self.hosts[place]) / "kept").rglob("COMPLETE"):
            attempt = re.fullmatch(r"attempt-(\d+)", mark.parent.parent.name)
            found.append(Kept(int(attempt[1]) if attempt else 0, int(mark.parent.name[5:]), mark.parent))
        return sorted(found, reverse=True)

    def wait_for_kept(self, attempt: int, count: int = 1) -> None:
        """Wait until an attempt has written so many checkpoints, and all ranks of it have made steps."""

        def is_so() -> bool:
            assert not self.directory.is_over(), self.events()[-1].message
            made = all(len(self.lines(attempt, rank)) > EVERY for rank in range(len(self.ranks)))
            return made and sum(item.attempt == attempt for item in self.kept()) >= count

        try:
            wait_until(is_so, f"{count} checkpoints of attempt {attempt}", DEADLINE_S)
        except AssertionError as error:
            raise AssertionError([f"{event.kind}: {event.message}" for event in self.events()][-15:]) from error

    def newest_of(self, attempt: int) -> int:
        """Return the step of the newest checkpoint that an attempt has written, which is over or halted.

        Where each host has its own, it is that which all have.
        """
        if not self.shared:
            return self.newest_of_all(attempt)
        return max(item.step for item in self.kept() if item.attempt == attempt)

    def newest_of_all(self, attempt: int, *damaged: Path) -> int:
        """Return the step of the newest checkpoint of an attempt that each host has for itself, but for some."""
        steps = [
            {item.step for item in self.kept(place) if item.attempt == attempt and item.path not in damaged}
            for place in range(len(self.hosts))
        ]
        return max(set.intersection(*steps))

    def signal(self, host: Host, number: signal.Signals, pids: Iterable[int] | None = None) -> None:
        """Send a signal to the job's processes of a host but its supervisor, or to others there.

        What is halted has come to a halt then: until it does, it may go on for a moment.
        """
        chosen = list(processes_of(self.lab, host.name, self.directory) if pids is None else pids)
        host.run(["kill", f"-{number.name[3:]}", *map(str, chosen)], check=False)
        if number is signal.SIGSTOP:
            wait_until(lambda: all(acts_no_more(host, pid) for pid in chosen), "all to halt", DEADLINE_S)

    def files(self, host: Host, attempt: int) -> AttemptFiles:
        """Return the files of an attempt on a host, as they are seen here."""
        return AttemptFiles.of(root_of(host), self.directory.job_id, attempt)

    def supervisor(self, host: Host, attempt: int) -> int:
        return int(json.loads(self.files(host, attempt).supervisor.read_text())["pid"])

    def lines(self, attempt: int, rank: int) -> list[str]:
        path = self.directory.logs(attempt, self.ranks[rank]) / f"{rank}.out"
        return path.read_text().splitlines() if path.exists() else []

    def let_go(self, deadline_s: float = DEADLINE_S) -> list[Event]:
        """Let it come to its end; return all events."""
        self.touch("go")
        wait_until(self.directory.is_over, "the job to end", deadline_s)
        return self.events()

    def check(self, begun: Sequence[int | None]) -> None:
        """Look that each attempt went on from a step, or made none; that none is made twice in it; and at each sum."""
        events = self.events()
        assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
        assert len(restarts(events)) == len(begun) - 1, [event.message for event in restarts(events)]
        assert [event.kind for event in events].count(EventKind.OUTCOME) == 1
        for attempt, first in enumerate(begun):
            for rank in range(len(self.ranks)):
                said = self.lines(attempt, rank)
                if first is None:
                    assert "from" not in "".join(said), (attempt, rank, said)
                    continue
                assert said[0] == f"from {first}", (attempt, rank, said[:2])
                assert said[1:] == [f"{step} {sum_after(step)}" for step in range(first + 1, first + len(said))]
        told = [event.data["step"] for event in events if event.data.get("resume_from")]
        assert told[-1] == begun[-1]
        assert len(comebacks(events)) == sum(first is not None for first in begun) - 1
        for event in comebacks(events):
            assert 0 <= event.data["seconds"] < 2 * DEADLINE_S
        for host in self.hosts:
            left = functools.partial(processes_of, self.lab, host.name, self.directory)
            wait_until(lambda left=left: not left(), f"nothing to be left on {host.name}")  # type: ignore[misc]


def acts_no_more(host: Host, pid: int) -> bool:
    """Whether a process of a host has come to a halt, or is gone."""
    try:
        stat = Path(f"/proc/{host.pid}/root/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(") ")[2][0] in "TZX"


def root_of(host: Host) -> Path:
    """Return the root of a host's agent, as it is seen here."""
    return Path(f"/proc/{host.pid}/root/var/tmp/dtagent-0")


@functools.cache
def sum_after(step: int) -> int:
    """Return what ranks have added up after a step."""
    total = 7
    for number in range(1, step + 1):
        total = (total * 31 + number) % 1000003
    return total
