"""Looks after an agent on a host: what is there, the end of its daemon, its removal. Pushed with `deploy_program`.

Knows the standard library of Python 3.10, and of the agent only its files: it may be of any version, or broken.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dtagent.protocol.places import forget

from dttui.fleet.deployment.deploy_program import in_use, probe, sole_deployment
from dttui.fleet.deployment.frame_program import main, run_tool
from dttui.fleet.deployment.root_program import Refusal, inspect_root

LEASE_S = 60
"""What was prepared so long ago, and not started, holds nothing any more."""
DAEMON_END_S = 10.0
SYSTEMCTL_TIMEOUT_S = 25.0
DESCRIBE_TIMEOUT_S = 20
OURS = ("tools", "agents", "current", "agent.sock", "daemon.err", "daemon.err.1", "daemon.env", "store", "removed")
"""Everything the agent keeps in its root, but for `jobs`."""
DESCRIBE = """
import json, platform
from dtagent.protocol.rpc import VERSIONS
try:
    from dtagent.linger import logout_kills
    kills = logout_kills()
except (ImportError, OSError, ValueError):
    kills = None
print(json.dumps({"python": platform.python_version(), "protocols": list(VERSIONS), "logout_kills": kills}))
"""


def inspect(root: Path, _request: dict[str, Any], _stream: BinaryIO) -> dict[str, Any]:
    """Say what is installed and what runs. Writes nothing and starts no daemon."""
    found = probe(root)
    place = inspect_root(root)
    described: dict[str, Any] = {}
    if found["version"] is not None:
        python = str(place / "agents" / found["current"] / "bin" / "python")
        with contextlib.suppress(Refusal, ValueError):
            described = json.loads(run_tool("check-failed", [python, "-I", "-c", DESCRIBE], DESCRIBE_TIMEOUT_S))
    agents = place / "agents"
    kept = sorted(path for path in agents.iterdir() if path.name != found["current"]) if agents.is_dir() else []
    return {
        "probe": found,
        "agent_python": described.get("python"),
        "protocols": described.get("protocols", []),
        "logout_kills": described.get("logout_kills"),
        "daemon": _daemon(place),
        "attempts": list(_attempts(place)),
        "others": [{"digest": path.name, "in_use": in_use(path)} for path in kept],
    }


def retire(root: Path, _request: dict[str, Any], _stream: BinaryIO) -> dict[str, Any]:
    """End the daemon, whatever its version; jobs go on, and the next client starts the current one."""
    place = inspect_root(root)
    had_daemon = _daemon(place) is not None
    _end_daemon(root, place)
    return {"had_daemon": had_daemon, "running": [item for item in _attempts(place) if item["state"] == "running"]}


def remove(root: Path, request: dict[str, Any], _stream: BinaryIO) -> dict[str, Any]:
    """Remove the agent, and with `jobs` what jobs left, but for their checkpoints unless `checkpoints` says so."""
    place = inspect_root(root)
    if not place.is_dir():
        return {"removed": False, "kept": [], "jobs": 0}
    _refuse_busy(place)
    with contextlib.ExitStack() as stack:
        if (place / "agents").is_dir():
            stack.enter_context(sole_deployment(place / "agents"))
        # Held to the end: without a daemon no job can start meanwhile.
        stack.enter_context(_no_daemon(root, place))
        _refuse_busy(place)
        _remove_unit(root)
        had_agent = any(os.path.lexists(place / name) for name in OURS)
        count = _remove_jobs(place / "jobs", request["checkpoints"]) if request["jobs"] else 0
        for path in [place / name for name in OURS] + [*place.glob(".current-*"), *place.glob(".daemon.env.*")]:
            _delete(path)
        with contextlib.suppress(OSError):
            (place / "jobs").rmdir()
        kept = sorted(str(root / path.name) for path in place.iterdir())
        with contextlib.suppress(OSError):
            root.rmdir()
            forget(str(root))
    return {"removed": had_agent, "kept": kept, "jobs": count}


def _refuse_busy(root: Path) -> None:
    busy = [item for item in _attempts(root) if item["state"] in ("running", "left", "prepared")]
    if busy:
        raise Refusal("jobs-running", jobs=", ".join(sorted({item["job"] for item in busy})))


def _attempts(root: Path) -> Iterator[dict[str, Any]]:
    """Yield job, attempt and state of all that is known here, by their files and processes.

    `left` are attempts without a supervisor of which processes are there all the same.
    """
    marked = _marked_jobs()
    for directory in sorted((root / "jobs").glob("*/*")):
        if not directory.name.isdigit():
            continue
        names = {path.name for path in directory.iterdir()}
        if _is_locked(directory / "supervisor.lock"):
            state = "running"
        elif directory.parent.name in marked:
            state = "left"
        elif "start.json" in names:
            state = "ended"
        elif "discarded" in names:
            state = "discarded"
        elif "prepared.json" in names:
            age_s = time.time() - (directory / "prepared.json").stat().st_mtime
            state = "prepared" if age_s < LEASE_S else "discarded"
        else:
            continue
        yield {"job": directory.parent.name, "attempt": int(directory.name), "state": state}


def _marked_jobs() -> set[str]:
    """Return the jobs whose mark a process of ours carries in its environment."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.stat().st_uid == os.getuid():
                for variable in (process / "environ").read_bytes().split(b"\0"):
                    if variable.startswith(b"DTTUI_JOB_ID="):
                        found.add(os.fsdecode(variable.partition(b"=")[2]))
    return found


def _is_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _daemon(root: Path) -> dict[str, Any] | None:
    """Return the daemon that serves: its pid, since when (Unix time) and the version it runs from."""
    if not root.is_dir():
        return None
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
            channel.settimeout(5)
            # Through the descriptor, since the root's path may be longer than a socket address allows.
            channel.connect(f"/proc/self/fd/{descriptor}/agent.sock")
            pid, owner, _group = struct.unpack(
                "3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            )
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if owner != os.getuid():
        raise Refusal("root-not-ours", path=str(root / "agent.sock"), uid=owner)
    digest, since = None, None
    with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
        stat = Path(f"/proc/{pid}/stat").read_text()
        ticks = int(stat.rpartition(")")[2].split()[19])
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        since = int(booted.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
        program = Path(os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]))
        digest = program.parents[1].name if program.parents[2] == (root / "agents").resolve() else None
    return {"pid": pid, "since": since, "digest": digest, "warm": list(_warm(pid))}


def _warm(daemon: int) -> Iterator[dict[str, Any]]:
    """Yield the processes that the daemon keeps with torch imported; of memory that is shared, their share."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError, StopIteration):
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) != daemon:
                continue
            python, script = (process / "cmdline").read_bytes().split(b"\0")[:2]
            if not script.endswith(b"/dtagent/payload/warm.py"):
                continue
            lines = (process / "smaps_rollup").read_text().splitlines()
            size_kib = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            yield {"python": os.fsdecode(python), "pid": int(process.name), "memory_mib": size_kib // 1024}


def _end_daemon(root: Path, place: Path) -> None:
    """End the daemon that serves now, if there is one."""
    for unit in _units(root):
        _systemctl("stop", unit.name)
    found = _daemon(place)
    if found is None:
        return
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(found["pid"])
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):  # What it knows is on disk at every moment.
                signal.pidfd_send_signal(process, number)
                if select.select([process], [], [], DAEMON_END_S)[0]:
                    return
        finally:
            os.close(process)


@contextlib.contextmanager
def _no_daemon(root: Path, place: Path) -> Iterator[None]:
    """End the daemon, and hold the lock that one needs to start."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    deadline = time.monotonic() + DAEMON_END_S
    try:
        while True:
            _end_daemon(root, place)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise Refusal("daemon-stays", path=str(root)) from error
                time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _units(root: Path) -> list[Path]:
    """Return the files of systemd units that run the daemon of this root."""
    directory = Path(f"/run/user/{os.getuid()}/systemd/user")
    mark = '"--root" "' + str(root).replace("%", "%%") + '"'
    found = []
    for path in directory.glob("dtagent*.service"):
        with contextlib.suppress(OSError):
            if mark in path.read_text(errors="replace"):
                found.append(path)
    return found


def _remove_unit(root: Path) -> None:
    units = _units(root)
    for unit in units:
        unit.unlink(missing_ok=True)
        unit.with_name(f"{unit.name}.env").unlink(missing_ok=True)
    if units:
        _systemctl("daemon-reload")


def _systemctl(*arguments: str) -> None:
    environment = {**os.environ, "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            ["systemctl", "--user", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=SYSTEMCTL_TIMEOUT_S,
            check=False,
        )


def _remove_jobs(jobs: Path, with_checkpoints: bool) -> int:
    """Remove the directories of attempts; return how many there were. Checkpoints with files in them stay."""
    attempts = [path for path in jobs.glob("*/*") if path.is_dir()]
    for attempt in attempts:
        kept = [] if with_checkpoints else [path for path in _checkpoints(attempt) if any(_files(path))]
        _clear(attempt, kept)
    for job in jobs.glob("*"):
        with contextlib.suppress(OSError):
            job.rmdir()
    return len(attempts)


def _checkpoints(attempt: Path) -> set[Path]:
    """Return the attempt's usual directory of checkpoints, and those inside the attempt's own that the job named."""
    found = {attempt / "checkpoints"}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        for process in json.loads((attempt / "start.json").read_text())["processes"]:
            named = process["env"].get("DTTUI_CHECKPOINT_DIR")
            if named:
                found.add(Path(os.path.normpath(Path(process["cwd"], named))))
    return {path for path in found if attempt in path.parents}


def _files(directory: Path) -> Iterator[str]:
    for _path, _directories, names in os.walk(directory):
        yield from names


def _clear(directory: Path, kept: list[Path]) -> None:
    for path in list(directory.iterdir()):
        if path in kept:
            continue
        if path.is_dir() and not path.is_symlink() and any(path in keep.parents for keep in kept):
            _clear(path, kept)
        else:
            _delete(path)
    with contextlib.suppress(OSError):
        directory.rmdir()


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(globals()["stdin"], {"inspect": inspect, "retire": retire, "remove": remove}))
