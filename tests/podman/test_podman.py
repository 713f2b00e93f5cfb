"""Jobs in containers of real podman on the embedded cluster, as root, with an image made of programs of this host."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui.services import jobs
from tests.agent.conversation import processes_with
from tests.integration.containers import WAIT, kill_a_supervisor, log_of, start
from tests.integration.headless import dttui, example_job, result_of, shell_job, write_job
from tests.processes import demo_root as demo_root
from tests.processes import shared_agents as shared_agents
from tests.waiting import wait_until

ONE, TWO = "pytorch-dev-env", "llm-training-env"
IMAGE = "localhost/dttui-test:1"
PODMAN = """\
#!/bin/sh
# Without the second hierarchy of cgroups, which crun does not take beside the first.
exec unshare --mount sh -c '
  umount /sys/fs/cgroup/unified 2>/dev/null
  exec "$0" --storage-driver vfs "$@"
' {podman} "$@"
"""
PROGRAMS = ("/bin/sh", "/bin/sleep", "/bin/cat", "/usr/bin/id")


@pytest.fixture(scope="module")
def podman(demo_root: Path) -> Iterator[Path]:
    """Return a directory with a podman that has an image of a shell; skip where podman cannot run one here."""
    real = shutil.which("podman")
    if real is None or os.getuid() != 0:
        reason = "needs root, and podman: apt-get install podman"
        pytest.fail(reason) if os.environ.get("DTTUI_REQUIRE_PODMAN") == "1" else pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="dttui-") as directory:
        command = Path(directory) / "podman"
        command.write_text(PODMAN.format(podman=real))
        command.chmod(0o755)
        archive = Path(directory) / "image.tar"
        _archive(archive)
        call = [str(command), "import", str(archive), IMAGE]
        tried = [str(command), "run", "--rm", "--pull=never", *_limits(), "--network=host", "--pid=host", IMAGE, "id"]
        try:
            imported = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
            ran = subprocess.run(tried, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired as late:
            pytest.skip(f"podman runs no containers here: {late}")
        if imported.returncode or ran.returncode:
            pytest.skip(f"podman runs no containers here: {imported.stderr[-300:]}{ran.stderr[-300:]}")
        yield Path(directory)
        subprocess.run([str(command), "rmi", "--force", IMAGE], capture_output=True, timeout=60, check=False)


def _archive(path: Path) -> None:
    """Write the files of an image: some programs with the libraries that they load."""
    told = subprocess.run(["ldd", *PROGRAMS], capture_output=True, text=True, check=True).stdout
    wanted = {*PROGRAMS, *(word for word in told.split() if word.startswith("/lib") and not word.endswith(":"))}
    with tarfile.open(path, "w", dereference=True) as archive:
        for folder in ("proc", "sys", "dev", "tmp", "etc", "var/tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name in sorted(wanted):
            archive.add(os.path.realpath(name), name.lstrip("/"))


def _limits() -> list[str]:
    """Return limits that may be set without CAP_SYS_RESOURCE, which podman's own may not."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return [f"--ulimit=nofile={files}:{files}", "--ulimit=nproc=4096:4096"]


def _containers(podman: Path) -> str:
    call = [str(podman / "podman"), "ps", "--all", "--quiet"]
    return subprocess.run(call, capture_output=True, text=True, timeout=60, check=True).stdout


def test_podman_runs_ranks_and_leaves_none_after_an_end_a_stop_or_a_kill(
    podman: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{podman}:{os.environ['PATH']}")
    container: dict[str, Any] = {"engine": "podman", "image": IMAGE, "options": _limits()}
    told = 'echo "rank $RANK of $WORLD_SIZE in $PWD"; id -u; cat file; echo made >made'
    (tmp_path / "file").write_text("sent\n")
    run = {"command": ["sh", "-c", told], "workdir": ".", "container": container}
    done = dttui(
        "--demo", "--apply", write_job(tmp_path, {ONE: 1, TWO: 1}, framework="command", run=run), "--output", "json"
    )
    assert done.returncode == 0, done.stderr
    job = result_of(done)["job_id"]
    for rank, node in enumerate((ONE, TWO)):
        first, *rest = log_of(job, node, f"{rank}.out").splitlines()
        assert first.startswith(f"rank {rank} of 2 in {os.environ['DTTUI_DEMO_ROOT']}")
        assert rest == [str(os.getuid()), "sent"]
        made = Path(first.partition(" in ")[2]) / "made"
        assert (made.read_text(), made.stat().st_uid) == ("made\n", os.getuid())
    assert _containers(podman) == ""
    for is_killed in (False, True):
        job = start(shell_job(tmp_path, {ONE: 1}, WAIT, container=container))
        wait_until(partial(_says, job, "runs 0"), "the container to run", 60)
        kill_a_supervisor(job) if is_killed else dttui("stop", job)
        wait_until(lambda: _containers(podman) == "", "no container to be left", 60)
        wait_until(partial(_is_gone, job), "no process to be left", 60)


def _is_gone(job: str) -> bool:
    return not processes_with(f"DTTUI_JOB_ID={job}")


def _says(job: str, words: str) -> bool:
    return words in log_of(job, ONE, "0.out")


@pytest.mark.torch
def test_the_example_trains_in_containers_and_its_ranks_are_seen_from_outside(
    podman: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{podman}:{os.environ['PATH']}")
    job = example_job(tmp_path, {ONE: 1, TWO: 1}, "--steps", "30", "--log-every", "5")
    document = yaml.safe_load(job.read_text())
    # The image has no Python: it sees that of this host.
    seen = ["/usr", "/lib", "/lib64", sys.prefix]
    seen += [sys.base_prefix] if not sys.base_prefix.startswith("/usr") else []
    mounts = [f"{os.path.realpath(path)}:{path}:ro" for path in seen if os.path.exists(path)]
    container = {"engine": "podman", "image": IMAGE, "options": _limits(), "mounts": mounts}
    document["distributed_training"]["run"] |= {"container": container, "python": sys.executable}
    job.write_text(yaml.safe_dump(document))
    done = dttui("--demo", "--apply", job, "--output", "json")
    assert done.returncode == 0, done.stderr
    directory = jobs.find(result_of(done)["job_id"])
    said = (directory.logs(0, ONE) / "0.out").read_text()
    losses = [float(loss) for loss in re.findall(r"^step \d+/30  loss ([\d.]+)", said, re.MULTILINE)]
    assert losses[-1] < losses[0] - 1
    told = [json.loads(line) for line in directory.samples(ONE).read_text().splitlines()]
    assert any(rank["memory_used_mib"] > 50 for sample in told for rank in _ranks(sample))
    assert _containers(podman) == ""


def _ranks(sample: dict[str, Any]) -> list[dict[str, Any]]:
    return [rank for ranks in sample.get("ranks", {}).values() for rank in ranks]
