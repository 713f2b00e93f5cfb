"""A Slurm of two nodes on this machine, from Debian's packages, that lives and dies with the session."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.waiting import wait_until

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "setpriv", "unshare")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_START_S = 90.0
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
MpiDefault=none
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldPidFile={root}/slurmctld.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd-%n.log
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=1000 Gres=gpu:1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=1000 Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=10
PartitionName=second Nodes=ALL State=UP MaxTime=10
"""
# Devices that are everywhere stand for GPUs: Slurm only counts them and tells their numbers.
_GPUS = (
    "NodeName=n1 Name=gpu File=/dev/zero\nNodeName=n2 Name=gpu File=/dev/zero\nNodeName=n2 Name=gpu File=/dev/full\n"
)


@dataclass(frozen=True)
class Slurm:
    """A cluster of the nodes n1, with one GPU, and n2, with two; none of them is real."""

    environment: dict[str, str]
    """What its commands need."""
    log: Path
    """Of slurmctld."""

    def submit(self, directory: Path, *options: str, deadline_s: float = 100.0) -> tuple[str, str]:
        """Run `job.sbatch` of a directory to its end; return the state it ended in and what it has written."""
        job = self._call("sbatch", "--parsable", *options, "job.sbatch", cwd=directory).strip()

        def ended() -> str | None:
            # `sbatch --wait` looks ever more rarely, and asking again and again takes the time of those who train.
            if not re.search(rf"_job_complete: JobId={job}\S* done", self.log.read_text()):
                return None
            told = self._call("scontrol", "--oneliner", "show", "job", job)
            states = set(re.findall(r"JobState=(\w+)", told))  # A heterogeneous job has a line a group.
            return states.pop() if len(states) == 1 and states <= {"COMPLETED", "FAILED", "CANCELLED"} else None

        state = wait_until(ended, f"job {job} to end", deadline_s)
        assert state is not None
        return state, "".join(path.read_text() for path in directory.glob("*-*.out"))

    def _call(self, *argv: str, cwd: Path | None = None) -> str:
        done = subprocess.run(argv, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


def missing_requirement() -> str | None:
    """Return what this machine lacks for a Slurm, as a reason to skip, or `None`."""
    if os.geteuid() != 0:
        return "needs root"
    lacking = [name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None]
    if lacking:
        return f"needs {', '.join(lacking)}: apt install slurm-wlm munge"
    return None


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A Slurm of its own; skipped or failed where this machine cannot have one."""
    if reason := missing_requirement():
        if os.environ.get("DTTUI_REQUIRE_SLURM") == "1":
            pytest.fail(f"DTTUI_REQUIRE_SLURM=1, but a Slurm {reason}", pytrace=False)
        pytest.skip(f"a Slurm {reason}")
    with contextlib.ExitStack() as stack:
        # Not below pytest's own: munged runs as another user, which must get there.
        root = Path(tempfile.mkdtemp(prefix="dttui-slurm-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        yield _started(root, stack)


def _started(root: Path, stack: contextlib.ExitStack) -> Slurm:
    root.chmod(0o755)
    host = socket.gethostname().partition(".")[0]
    (root / "slurm.conf").write_text(_CONFIGURATION.format(root=root, host=host, ports=free_ports(3)))
    (root / "gres.conf").write_text(_GPUS)
    (root / "hosts").write_text(f"127.0.0.1 localhost n1 n2 {host}\n")
    (root / "state").mkdir()
    environment = {"PATH": _PATH, "SLURM_CONF": str(root / "slurm.conf"), "LANG": "C.UTF-8", "HOME": "/root"}
    _start(stack, _munged(root), environment, root / "munged.out")
    wait_until((root / "munge" / "socket").exists, "munged", _START_S)
    for name, command in (
        ("slurmctld", "slurmctld -D -c"),
        ("n1", "slurmd -D -N n1"),
        ("n2", "slurmd -D -N n2"),
    ):
        # So that the names of the nodes are those of hosts, for them and their jobs alone.
        line = f'mount --bind "{root}/hosts" /etc/hosts && exec {command}'
        _start(stack, ["unshare", "--mount", "sh", "-c", line], environment, root / f"{name}.out")

    def idle() -> bool:
        told = subprocess.run(
            ["sinfo", "--noheader", "--partition=all", "--format=%t %D"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return told.stdout.split() == ["idle", "2"]

    wait_until(idle, "both nodes to be idle", _START_S)
    return Slurm(environment, root / "slurmctld.log")


def _munged(root: Path) -> list[str]:
    place = root / "munge"
    place.mkdir()
    (place / "key").write_bytes(os.urandom(128))
    (place / "key").chmod(0o400)
    owner = pwd.getpwnam("munge")
    for path in (place, place / "key"):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    options = [f"--{option}={place / name}" for option, name in files.items()]
    return ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged", "--foreground", *options]


def _start(stack: contextlib.ExitStack, argv: list[str], environment: dict[str, str], log: Path) -> None:
    """Start a daemon, which ends with the stack."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
