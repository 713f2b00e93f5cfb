"""Finding and ending the processes of an attempt: real processes, none of them mistaken for another."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.supervision import usage
from dtagent.supervision.family import Family, kill_all
from dtagent.system import cgroup, processes
from dtagent.system.processes import ProcessId
from dtagent.system.retry import retry_when_short

from tests.clock import Clock
from tests.waiting import wait_until

KEY = AttemptKey(f"family-{os.getpid()}", 0)
FAMILY = Family(KEY, 0)
MARKS = {"DTTUI_JOB_ID": KEY.job_id, "DTTUI_ATTEMPT": "0", "DTTUI_NODE_RANK": "0"}


def reap(child: subprocess.Popen[bytes]) -> None:
    child.poll()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "304"], env={**os.environ, **MARKS}) as child:
        wait_until(lambda: FAMILY.scan(), "its environment to be there")
        yield child
        child.kill()


def test_a_process_is_found_by_its_marks_and_by_all_of_them(sleeper: subprocess.Popen[bytes]) -> None:
    assert [item.pid for item in FAMILY.scan()] == [sleeper.pid]
    for other in (replace(FAMILY, node_rank=1), Family(AttemptKey(KEY.job_id, 1), 0), Family(AttemptKey("x", 0), 0)):
        assert other.scan() == []


def test_what_a_known_process_started_is_found_without_marks() -> None:
    code = "import subprocess; subprocess.run(['sleep', '305'], env={}); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as parent:
        known = processes.identify(parent.pid)
        assert known is not None
        family = replace(FAMILY, members=(known,))
        wait_until(lambda: len(family.scan()) == 2, "the child of the known process")
        stranger = replace(FAMILY, members=(ProcessId(known.pid, known.start_time - 1),))
        assert stranger.scan() == [], "another process had this pid once"
        assert kill_all(family, 30.0, on_wait=lambda: reap(parent)) == []


def test_a_signal_for_an_earlier_process_with_the_same_pid_is_not_sent(sleeper: subprocess.Popen[bytes]) -> None:
    real = processes.identify(sleeper.pid)
    assert real is not None
    earlier = ProcessId(real.pid, real.start_time - 1)
    assert not processes.send(earlier, signal.SIGKILL)
    processes.wait_for_ends([earlier], 30.0)
    assert sleeper.poll() is None
    assert processes.send(real, signal.SIGKILL)
    assert sleeper.wait(30) == -signal.SIGKILL
    assert not processes.send(real, signal.SIGKILL)


def test_a_pid_that_the_kernel_gives_again_is_another_process(can_have_lab: None) -> None:
    with subprocess.Popen(["sleep", "306"]) as first:
        before = processes.identify(first.pid)
        assert before is not None
        first.kill()
    hertz = os.sysconf("SC_CLK_TCK")
    wait_until(lambda: time.clock_gettime(time.CLOCK_BOOTTIME) * hertz > before.start_time + 2, "the next clock tick")
    last_pid = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(50):  # Another process of this machine may be given it first.
        last_pid.write_text(str(before.pid - 1))
        with subprocess.Popen(["sleep", "307"]) as second:
            found = second.pid == before.pid
            if found:
                assert not processes.send(before, signal.SIGKILL)
                assert second.poll() is None
            second.kill()
        if found:
            return
    pytest.fail("the pid was never given again")


def test_the_wait_ends_with_the_processes_or_with_a_word(sleeper: subprocess.Popen[bytes]) -> None:
    found = FAMILY.scan()
    read, write = os.pipe()
    began = time.monotonic()
    os.write(write, b"x")
    processes.wait_for_ends(found, 30.0, wake=read)
    sleeper.kill()
    processes.wait_for_ends(found, 30.0)
    assert time.monotonic() - began < 25
    os.close(read)
    os.close(write)


def test_a_process_whose_first_thread_alone_has_ended_still_counts() -> None:
    code = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(308,)).start(); "
    code += "ctypes.CDLL(None).pthread_exit(None)"
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, **MARKS}, stderr=subprocess.DEVNULL
    ) as child:
        stat = Path(f"/proc/{child.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(") ")[2].startswith("Z"), "the first thread to end")
        assert processes.identify(child.pid) is not None
        child.kill()


def test_memory_that_is_shared_counts_once() -> None:
    code = (
        "import mmap, os, time\nm = mmap.mmap(-1, 64 << 20)\nm.write(b'x' * (64 << 20))\n"
        "for _ in range(3):\n if os.fork() == 0:\n  sum(m[::4096]); time.sleep(309)\nos.wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **MARKS}) as child:
        wait_until(lambda: len(FAMILY.scan()) == 4, "the children")
        wait_until(lambda: usage.resident_bytes(FAMILY.scan()) > 64 << 20, "the memory to be written")
        assert usage.resident_bytes(FAMILY.scan()) < 160 << 20
        kill_all(FAMILY, 30.0, on_wait=lambda: reap(child))


def test_a_cgroup_holds_what_leaves_no_other_trace_and_the_kernel_ends_it(can_have_lab: None) -> None:
    own = cgroup.create(f"dttui-test-{os.getpid()}")
    assert own is not None
    child = subprocess.Popen(["sh", "-c", "env -i setsid sh -c 'sleep 310 & sleep 311' & exit"], preexec_fn=own.enter)
    child.wait(30)
    family = replace(FAMILY, cgroup=own)
    wait_until(lambda: len(family.scan()) == 3, "the orphans")
    assert FAMILY.scan() == []
    own.remove()
    assert own.path.exists(), "there are processes in it"
    assert kill_all(family, 30.0) == []
    own.remove()
    assert not own.path.exists()
    own.kill()
    assert own.pids() == set()


def test_without_a_cgroup_of_its_own_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "own_directory", lambda: None)
    assert cgroup.create("x") is None
    monkeypatch.setattr(cgroup, "own_directory", lambda: tmp_path)
    monkeypatch.setattr(cgroup, "_is_delegated", lambda path: False)
    assert cgroup.create("x") is None
    assert list(tmp_path.iterdir()) == []


def test_in_a_scope_of_its_own_a_supervisor_has_memory_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Files in place of a kernel whose memory controller this machine may have given to cgroup v1.
    scope = tmp_path / f"{cgroup.SCOPE_PREFIX}x.scope"
    (scope / "supervisor").mkdir(parents=True)
    (scope / "cgroup.procs").write_text("41\n42\n")
    monkeypatch.setattr(cgroup, "own_directory", lambda: scope)
    monkeypatch.setattr(cgroup, "_is_delegated", lambda path: True)
    own = cgroup.create("job")
    assert own is not None
    assert own.path == scope / "job"
    assert own.peak_memory_bytes() is None
    assert (scope / "supervisor/cgroup.procs").read_text() == "42", "one pid a write, the last one stays in a file"
    assert (scope / "cgroup.subtree_control").read_text() == "+memory"
    (own.path / "memory.peak").write_text("734003200\n")
    assert usage.MemoryPeak(replace(FAMILY, cgroup=own)).wait_s() is None
    assert usage.MemoryPeak(replace(FAMILY, cgroup=own)).mib() >= 700


class Killed:
    """Ends a child however its test ends: else the failure of one would be told when the child has slept enough."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.close = child.kill


class Looks:
    """A family whose looks at it give what the test says, one after the other, and then always the last."""

    cgroup = None

    def __init__(self, *found: list[ProcessId] | OSError) -> None:
        self.left = list(found)
        self.count = 0

    def scan(self) -> list[ProcessId]:
        self.count += 1
        found = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(found, OSError):
            raise found
        return found


NONE_LEFT = OSError(24, "Too many open files")


def test_one_look_that_finds_nobody_is_no_proof(sleeper: subprocess.Popen[bytes]) -> None:
    found = FAMILY.scan()
    looks = Looks([], found, [], [])
    assert kill_all(cast(Family, looks), 30.0) == []
    assert looks.count == 4
    assert sleeper.wait(30) == -signal.SIGKILL


def test_a_moment_without_file_handles_is_waited_out_and_proves_nothing(sleeper: subprocess.Popen[bytes]) -> None:
    found = FAMILY.scan()
    waited: list[None] = []
    looks = Looks(NONE_LEFT, [], NONE_LEFT, [], found, NONE_LEFT, [], [])
    assert kill_all(cast(Family, looks), 30.0, on_wait=lambda: waited.append(None)) == []
    assert (looks.count, len(waited)) == (8, 7)
    assert sleeper.wait(30) == -signal.SIGKILL
    with pytest.raises(OSError, match="Too many open files"):
        kill_all(cast(Family, Looks(NONE_LEFT)), 0.1)


def test_a_scan_without_file_handles_is_an_error_or_waited_for(sleeper: subprocess.Popen[bytes]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    peak = usage.MemoryPeak(FAMILY)
    again = threading.Timer(0.3, lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
    wait_until(lambda: peak.wait_s() == 0, "a look to be due")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        with pytest.raises(OSError, match="Too many open files"):
            FAMILY.scan()
        with pytest.raises(OSError, match="Too many open files"):
            retry_when_short(FAMILY.scan, 0.1)
        peak.look()
        again.start()
        assert [item.pid for item in retry_when_short(FAMILY.scan, 20.0)] == [sleeper.pid]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        again.join()


def test_only_a_lack_of_file_handles_is_waited_out() -> None:
    tries: list[OSError] = [NONE_LEFT, OSError(errno.ENFILE, ""), OSError(errno.ENOSPC, "No space left on device")]
    with pytest.raises(OSError, match="No space left"):
        retry_when_short(lambda: raise_next(tries), 20.0)
    assert tries == []


def raise_next(errors: list[OSError]) -> None:
    raise errors.pop(0)


def test_another_users_process_with_the_same_marks_is_not_ours() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can run something as another user")
    with (
        subprocess.Popen(["sleep", "318"], env={**os.environ, **MARKS}, user=65534) as stranger,
        contextlib.closing(Killed(stranger)),
    ):
        environ = Path(f"/proc/{stranger.pid}/environ")
        wait_until(lambda: KEY.job_id.encode() in environ.read_bytes(), "its environment to be there")
        assert processes.owner_of(stranger.pid) == 65534
        assert FAMILY.scan() == []
        known = processes.identify(stranger.pid)
        assert known is not None
        assert replace(FAMILY, members=(known,)).scan() == [known], (
            "what was started by the attempt may change its user"
        )


def test_the_most_memory_is_that_of_live_processes_together(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    code = "held = b'x' * (300 << 20); print('ready', flush=True); import time; time.sleep(319)"
    with (
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **MARKS}, stdout=subprocess.PIPE) as child,
        contextlib.closing(Killed(child)),
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        peak = usage.MemoryPeak(FAMILY)
        monkeypatch.setattr("dtagent.supervision.usage.resource.getrusage", lambda _who: SimpleNamespace(ru_maxrss=0))
        peak.look()
        assert peak.mib() == 0, "it is not due yet"
        clock.now_s += peak.wait_s() or 0
        peak.look()
        assert 300 <= peak.mib() < 400


def test_what_will_not_die_is_named(sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path(f"/proc/{sleeper.pid}/stat")
    wait_until(lambda: stat.read_text().rpartition(") ")[2].startswith("S"), "it to sleep")
    # As with a process that waits in the kernel: signals reach it and nothing comes of them.
    monkeypatch.setattr(processes, "send", lambda process, number: True)
    (left,) = kill_all(FAMILY, 0.3)
    assert (left.pid, left.command, left.state) == (sleeper.pid, "sleep 304", "S")


def test_use_of_memory_is_looked_at_ever_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("dtagent.supervision.usage.time.monotonic", lambda: now)
    peak = usage.MemoryPeak(FAMILY)
    pauses = []
    for _ in range(7):
        wait_s = peak.wait_s()
        assert wait_s is not None
        pauses.append(wait_s)
        now += wait_s
        peak.look()
    assert pauses == [1, 2, 4, 8, 16, 16, 16]
