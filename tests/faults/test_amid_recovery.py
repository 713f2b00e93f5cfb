"""What else goes wrong while a job is started again: the training goes on from its newest whole checkpoint."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from dtagent.locations import AttemptFiles
from dtagent.protocol.events import EventKind
from dtagent.supervision import journal

from tests.faults.login_node import start_after_restart
from tests.faults.recovering import ended, lab, on_hosts, processes_of, restarts, submitted
from tests.faults.shell_training import DEADLINE_S, EACH_SAVES, TRAINS, Training, acts_no_more, root_of
from tests.faults.test_login_node import kill_controller
from tests.integration.headless import example_job
from tests.integration.slow_steps import slow_down
from tests.integration.test_gpt_example import TINY
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.probes import SYSTEM_PYTHON
from tests.lab.shared import SHARED, shared_by, show
from tests.processes import ended_agents as ended_agents
from tests.waiting import wait_until

__all__ = ["lab"]

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300), pytest.mark.xdist_group("lab amid recovery")]
BOTH = {"gpu1": 1, "gpu2": 1}
SUMS = "the state does not add up"
UNREADABLE = (
    r'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
    "_pickle.UnpicklingError: pickle data was truncated"
)


@pytest.fixture
def shared(lab: Lab) -> Iterator[Path]:
    """A directory that all hosts see."""
    with shared_by([*lab.values()]) as directory:
        yield directory


SAVES = {True: TRAINS, False: EACH_SAVES}
"""What ranks do, by whether all hosts see one directory of checkpoints."""


def daemons(host: Host) -> list[int]:
    return [item.pid for item in host.processes() if "dtagent" in item.cmdline and " daemon" in item.cmdline]


SKEW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += AHEAD_S;
    return result;
}
time_t time(time_t *told) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (told) *told = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *told, void *zone) {
    struct timespec now;
    (void) zone;
    clock_gettime(CLOCK_REALTIME, &now);
    told->tv_sec = now.tv_sec;
    told->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


def end_daemons(host: Host) -> None:
    if pids := daemons(host):
        host.run(["kill", "-KILL", *map(str, pids)], check=False)


def tear(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 9)


def flip(path: Path) -> None:
    text = bytearray(path.read_bytes())
    text[len(text) // 2] ^= 0x10
    path.write_bytes(text)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def age(path: Path) -> None:
    """Let a later version have written to it, by a clock that is a year ahead."""
    journal.append(path, {"event": "state", "state": "hovering", "time": 1.9e9, "version": 99, "reason": {"code": 7}})
    journal.append(path, {"event": "weather", "time": 1.9e9})


def test_whatever_became_of_a_supervisor_or_its_journal_the_next_attempt_begins_where_it_should(
    lab: Lab, shared: Path, tmp_path: Path
) -> None:
    """Over within 200 s: the supervisor killed; with its daemon, over a journal torn, flipped, empty, of the future."""
    check_supervisors_and_journals(lab, tmp_path, shared=True)


def check_supervisors_and_journals(lab: Lab, tmp_path: Path, *, shared: bool) -> None:
    # Longer than a busy machine takes to start the next daemon: till then the host is silent, and may not be lost.
    training = Training(lab, tmp_path, BOTH, SAVES[shared], shared=shared, max_restarts=5, heartbeat_s=40)
    gpu2 = lab["gpu2"]
    damages: list[Callable[[Path], None] | None] = [None, tear, flip, empty, age]
    for attempt, damage in enumerate(damages):
        training.wait_for_kept(attempt)
        files = training.files(gpu2, attempt)
        training.signal(gpu2, signal.SIGKILL, [*(daemons(gpu2) if damage else []), training.supervisor(gpu2, attempt)])
        if damage is not None:
            damage(files.journal)
    training.wait_for_kept(len(damages))
    events = training.let_go()
    training.check([0, *map(training.newest_of, range(len(damages)))])
    assert [event.data["cause"] for event in restarts(events)] == ["supervisor-lost"] * len(damages)


HIDES = """
[ "$DTTUI_ATTEMPT$RANK" = 02 ] && trap '' TERM
setsid sh -c 'trap "" TERM; while :; do sleep 0.5; done' &
env -i setsid sh -c 'trap "" TERM HUP; while :; do sleep 0.5; done' hidden &
"""
"""What a rank starts beside itself: in sessions of their own, deaf to a stop, one without any mark."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
STRANGERS = """
import json, os, subprocess, sys, time
doomed, wanted = json.loads(sys.argv[1])
for pid in doomed:
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
deadline = time.monotonic() + 20
started = {}
for pid in wanted:
    while pid not in started and time.monotonic() < deadline:
        with open("/proc/sys/kernel/ns_last_pid", "w") as last:
            last.write(str(pid - 1))
        null = subprocess.DEVNULL
        child = subprocess.Popen(["sleep", "600"], stdin=null, stdout=null, stderr=null, start_new_session=True)
        if child.pid == pid:
            with open(f"/proc/{pid}/stat") as stat:
                started[pid] = stat.read().rpartition(") ")[2].split()[19]
        else:
            child.kill()
            child.wait()
print(json.dumps(started))
"""


def recorded(training: Training, host: Host, attempt: int, *ranks: int) -> list[int]:
    """Return the pids of an attempt's supervisor on a host, and of ranks there, as its records tell."""
    directory = training.files(host, attempt).ranks
    told = [json.loads((directory / f"{rank}.json").read_text())["pid"] for rank in ranks]
    return [training.supervisor(host, attempt), *told]


def everything_of(training: Training, host: Host) -> list[int]:
    """Return all that runs of the job's ranks on a host, with marks and without."""
    hidden = [item.pid for item in host.processes() if item.cmdline.endswith(" hidden")]
    return [*processes_of(training.lab, host.name, training.directory), *hidden]


def count_hidden(host: Host) -> int:
    return sum(item.cmdline.endswith(" hidden") for item in host.processes())


def replaced(host: Host, doomed: list[int], pids: list[int]) -> dict[int, str]:
    """Kill processes of a host, and let others have some of their pids; return when those began."""
    done = host.run([SYSTEM_PYTHON, "-c", STRANGERS, json.dumps([doomed, pids])])
    started = {int(pid): began for pid, began in json.loads(done.stdout).items()}
    assert sorted(started) == sorted(pids)
    return started


def began(host: Host, pids: Iterable[int]) -> dict[int, str]:
    """Return when the processes of a host began that have these pids."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{host.pid}/root/proc/{pid}/stat").read_text()
            found[pid] = text.rpartition(") ")[2].split()[19]
    return found


def test_no_rank_outlives_its_attempt_and_whoever_has_its_pid_after_it_lives_on(
    lab: Lab, shared: Path, tmp_path: Path
) -> None:
    """Over within 200 s: ranks deaf to a stop; their pids had by others; another boot; a false one."""
    check_that_none_outlives(lab, tmp_path, shared=True)


def check_that_none_outlives(lab: Lab, tmp_path: Path, *, shared: bool) -> None:
    nodes = {"gpu1": 1, "gpu3": 2}
    training = Training(lab, tmp_path, nodes, HIDES + SAVES[shared], shared=shared, max_restarts=5)
    gpu1, gpu3 = lab["gpu1"], lab["gpu3"]

    training.wait_for_kept(0)
    training.signal(gpu3, signal.SIGKILL, recorded(training, gpu3, 0, 1)[1:])
    training.wait_for_kept(1)
    wait_until(lambda: count_hidden(gpu3) >= 2, "what each rank has started beside itself")
    assert count_hidden(gpu3) == 2

    pids = recorded(training, gpu3, 1, 1, 2)
    strangers = replaced(gpu3, [*daemons(gpu3), pids[0], *everything_of(training, gpu3)], pids)
    training.wait_for_kept(2)
    assert began(gpu3, pids) == strangers

    pids = recorded(training, gpu3, 2, 1, 2)
    gpu3.kill()
    gpu3.start()
    strangers = replaced(gpu3, [], pids)
    if shared:
        show(gpu1, gpu3)
    training.wait_for_kept(3)
    assert began(gpu3, pids) == strangers

    gpu3.run(["sh", "-c", f"cat /proc/sys/kernel/random/uuid > /run/boot && mount --bind /run/boot {BOOT_ID}"])
    training.signal(gpu3, signal.SIGKILL, daemons(gpu3))
    training.signal(gpu1, signal.SIGKILL, recorded(training, gpu1, 3, 0)[1:])
    training.wait_for_kept(4)
    wait_until(lambda: count_hidden(gpu3) >= 2, "what each rank has started beside itself")
    assert count_hidden(gpu3) == 2
    gpu3.run(["umount", BOOT_ID])
    training.let_go()
    training.check([0, *map(training.newest_of, range(4))])
    assert count_hidden(gpu3) == 0
    assert began(gpu3, pids) == strangers
    training.signal(gpu3, signal.SIGKILL, pids)


Skew: TypeAlias = Callable[[Host, int], None]


@pytest.fixture
def skewed(lab: Lab, tmp_path: Path) -> Iterator[Skew]:
    """Sets a host's clock for whatever begins there from then on, at the seam to it: the C library."""
    source = tmp_path / "skew.c"
    source.write_text(SKEW)
    hosts: list[Host] = []

    def skew(host: Host, seconds: int) -> None:
        hosts.append(host)
        library = tmp_path / f"{host.name}.so"
        subprocess.run(["cc", "-shared", "-fPIC", f"-DAHEAD_S={seconds}", "-o", library, source], check=True)
        host.run(["sh", "-c", "cat > /usr/lib/skew.so"], input=library.read_bytes())
        host.run(["sh", "-c", "echo /usr/lib/skew.so > /etc/ld.so.preload"])
        told = float(host.run([SYSTEM_PYTHON, "-c", "import time; print(time.time())"]).stdout)
        assert told - time.time() == pytest.approx(seconds, abs=30)
        end_daemons(host)

    yield skew
    for host in hosts:
        host.run(["rm", "-f", "/etc/ld.so.preload"])
        end_daemons(host)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc: apt install gcc libc6-dev")
def test_an_hour_between_the_clocks_of_hosts_changes_nothing_of_a_recovery(
    lab: Lab, shared: Path, skewed: Skew, tmp_path: Path
) -> None:
    """Over within 200 s: one host is an hour ahead, one behind; on each a rank is killed in turn."""
    check_clocks(lab, skewed, tmp_path, shared=True)


def check_clocks(lab: Lab, skewed: Skew, tmp_path: Path, *, shared: bool) -> None:
    skewed(lab["gpu1"], -3600)
    skewed(lab["gpu2"], 3600)
    began_at = time.time()
    training = Training(lab, tmp_path, BOTH, SAVES[shared], shared=shared, max_restarts=5)
    for attempt, name in enumerate(("gpu2", "gpu1")):
        training.wait_for_kept(attempt)
        host = lab[name]
        training.signal(host, signal.SIGKILL, recorded(training, host, attempt, 0 if name == "gpu1" else 1)[1:])
    training.wait_for_kept(2)
    events = training.let_go()
    training.check([0, *map(training.newest_of, range(2))])
    assert [event.data["cause"] for event in restarts(events)] == ["killed", "killed"]
    assert [failed.node for failed in training.directory.read_events(EventKind.RANK_FAILED)] == ["gpu2", "gpu1"]
    assert all(began_at - 5 <= event.time <= time.time() + 5 for event in events)


def test_a_login_node_that_is_restarted_amid_a_recovery_goes_on_with_that(
    lab: Lab, shared: Path, tmp_path: Path
) -> None:
    """Over within 200 s: while a host that is off is waited for; its log torn and of the future."""
    check_restarted_login_node(lab, tmp_path, shared=True)


def check_restarted_login_node(lab: Lab, tmp_path: Path, *, shared: bool) -> None:
    training = Training(lab, tmp_path, BOTH, SAVES[shared], shared=shared, max_restarts=5)
    directory, gpu1, gpu2 = training.directory, lab["gpu1"], lab["gpu2"]
    training.wait_for_kept(0)
    gpu2.kill()
    wait_until(lambda: restarts(training.events()), "the restart to be promised", 120)
    kill_controller(directory)
    with directory.events.open("ab") as stream:
        told = {"seq": len(training.events()), "time": time.time() + 1e6, "kind": "weather", "message": "", "data": {}}
        stream.write(json.dumps(told).encode() + b"\n" + b'{"seq": 99, "ti')
    disks = (Path(os.environ["HOME"]).parent, lab.directory)
    back = start_after_restart(disks, "attach", directory.job_id, "--output", "json")
    wait_until(directory.has_controller, "another controller", DEADLINE_S)
    gpu2.start()
    if shared:
        show(gpu1, gpu2)
    training.wait_for_kept(1)
    training.let_go()
    output, errors = back.communicate(timeout=DEADLINE_S)
    assert back.returncode == 0, errors
    assert json.loads(output)["state"] == "SUCCEEDED"
    training.check([0, training.newest_of(0)])


@pytest.mark.parametrize(
    ("damage", "said"), [(tear, SUMS), (flip, SUMS), (flip, UNREADABLE)], ids=["torn", "silent", "said"]
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    damage: Callable[[Path], None], said: str, lab: Lab, shared: Path, tmp_path: Path
) -> None:
    """Over within 200 s: cut short, which shows; a digit changed, which two attempts find out, and one that says it."""
    command = TRAINS.replace(f'echo "{SUMS}"', f"printf '{said}\\n' >&2")
    training = Training(lab, tmp_path, BOTH, command, max_restarts=5)
    training.wait_for_kept(0, 3)
    training.signal(lab["gpu1"], signal.SIGSTOP)
    newest, before, *_ = training.kept()
    if damage is flip:
        text = (newest.path / "state.json").read_text()
        (newest.path / "state.json").write_text(text.replace(f'"step": {newest.step}', f'"step": {newest.step + 1}'))
    else:
        damage(newest.path / "state.json")
    training.signal(lab["gpu1"], signal.SIGKILL, recorded(training, lab["gpu1"], 0, 0)[1:])
    in_vain = [] if damage is tear else [None, None] if said == SUMS else [None]
    begun = [0, *in_vain, before.step]
    training.wait_for_kept(len(begun) - 1)
    training.let_go()
    training.check(begun)


def test_a_checkpoint_for_which_the_disk_had_no_room_is_passed_over(lab: Lab, shared: Path, tmp_path: Path) -> None:
    """Over within 200 s: the disk is full in the middle of a write, and has room again when the next attempt begins."""
    training = full_for_a_while(lab, shared, tmp_path, shared=True)
    training.check([0, training.newest_of(0)])
    assert [event.data["cause"] for event in restarts(training.events())] == ["disk-full"]


def full_for_a_while(lab: Lab, seen: Path, tmp_path: Path, *, shared: bool) -> Training:
    """Have the disk of checkpoints be full until an attempt has failed; return its training, which has come to its end.

    Args:
        lab: its hosts.
        seen: the first host's directory, as it is seen here.
        tmp_path: where the job's files are.
        shared: whether all hosts see that directory.
    """
    filler = seen / "filler"
    waits = f"{{ until [ ! -e {SHARED}/filler ]; do sleep 0.1; done; exit 1; }}"
    command = (TRAINS if shared else EACH_SAVES).replace("|| exit 1", f"|| {waits}")
    training = Training(lab, tmp_path, BOTH, command, shared=shared, retry_on=["room"], max_restarts=5)
    training.wait_for_kept(0, 2)
    lab["gpu1"].run(["mount", "-o", "remount,size=1m", SHARED])
    with contextlib.suppress(OSError), filler.open("wb", 0) as stream:
        while True:
            stream.write(b"x" * 512)
    errors = training.directory.logs(0, "gpu1") / "0.err"
    wait_until(
        lambda: errors.exists() and "No space left on device" in errors.read_text(), "the disk to be full", DEADLINE_S
    )
    lab["gpu1"].run(["mount", "-o", "remount,size=8g", SHARED])
    filler.unlink()
    training.wait_for_kept(1)
    training.let_go()
    return training


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed: pip install .[torch]")
def test_a_checkpoint_in_which_bits_have_changed_is_not_trained_on_from(lab: Lab, shared: Path, tmp_path: Path) -> None:
    """Over within 240 s: torch itself would load it without a word."""
    args = ["--steps", "300", "--checkpoint-every", "20", "--keep-checkpoints", "9", "--resume", *TINY]
    checkpoint = {"dir": f"{SHARED}/kept", "shared": True}
    path = example_job(tmp_path, BOTH, *args)
    slow_down(tmp_path / "gpt/train.py")
    directory = submitted(path, on_hosts(lab, tmp_path), on_node_failure="restart", checkpoint=checkpoint)

    def complete() -> list[Path]:
        return sorted((mark.parent for mark in (shared / "kept").glob("step-*/COMPLETE")), reverse=True)

    wait_until(lambda: len(complete()) >= 2, "two checkpoints", DEADLINE_S)
    rank = json.loads((AttemptFiles.of(root_of(lab["gpu1"]), directory.job_id, 0).ranks / "0.json").read_text())["pid"]
    lab["gpu1"].run(["kill", "-STOP", str(rank)])
    wait_until(lambda: acts_no_more(lab["gpu1"], rank), "it to halt", DEADLINE_S)
    newest, before, *_ = complete()
    flip(newest / "state.pt")
    lab["gpu1"].run(["kill", "-KILL", str(rank)])
    events = ended(directory, 240)
    assert events[-1].data["state"] == "SUCCEEDED", events[-1].message
    (resumed,) = (event for event in events if event.data.get("resume_from"))
    assert resumed.data["resume_from"] == f"{SHARED}/kept/{before.name}"
    (passed,) = (event for event in events if event.data.get("code") == "checkpoint-passed")
    assert passed.message.endswith("state.pt has changed since it was written: its checksum does not hold")
    said = (directory.logs(1, "gpu1") / "0.out").read_text()
    assert f"resumed after step {int(before.name[5:])}" in said
