"""Running `dttui` as a person's shell would, and writing job files for it."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from dtagent.protocol.events import JobState

from dttui import jobs
from dttui.cli import main
from dttui.i18n import set_language
from tests.waiting import wait_until

EXAMPLE = Path("examples/gpt").resolve()
DEADLINE_S = 240.0


def dttui(
    *arguments: str | Path, deadline_s: float = DEADLINE_S, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run dttui to its end, in this process's environment or another."""
    return subprocess.run(
        [sys.executable, "-m", "dttui", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=deadline_s,
        stdin=subprocess.DEVNULL,
        env=env,
        check=False,
    )


def dttui_here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run dttui in this process, for what no terminal, signal or stream of its own has a part in.

    Its start is most of its time; whatever acts for a job has processes of its own all the same. Not within a loop.
    """
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            set_language("en")
    printed, said = (stream.buffer.getvalue().decode() for stream in (output, errors))
    return subprocess.CompletedProcess(arguments, code, printed, said)


def start_dttui(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start dttui and leave it running; its streams are pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "dttui", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def write_job(directory: Path, nodes: dict[str, int], **fields: Any) -> Path:
    """Write a job file for nodes (name → GPUs), the first being the master; return its path."""
    listed = [
        {"id": name, "role": "worker" if index else "master", "resources": {"gpu": {"count": count}}}
        for index, (name, count) in enumerate(nodes.items())
    ]
    job = {"name": "test job", "dataset": "none", "cluster": {"nodes": listed}, **fields}
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump({"distributed_training": job}, sort_keys=False))
    return path


def shell_job(directory: Path, nodes: dict[str, int], command: str, **run: Any) -> Path:
    """Write a job whose every rank runs a line of shell; more fields of `run` may be given."""
    return write_job(directory, nodes, framework="command", run={"command": ["sh", "-c", command], **run})


def example_job(directory: Path, nodes: dict[str, int], *args: str) -> Path:
    """Write a job that trains the example GPT with these arguments."""
    run = {"script": "train.py", "workdir": str(_copy_of_example(directory)), "args": list(args)}
    return write_job(directory, nodes, framework="pytorch-ddp", run=run)


def result_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the JSON document on stdout."""
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def wait_for_state(job: str, state: str) -> None:
    """Wait until a job is in a state, as its files tell: asking `dttui status` over and over costs the job its time."""
    directory = jobs.find(job)
    wait_until(lambda: jobs.summarize(directory).state.value == state, f"job {job} to be {state}", DEADLINE_S)


def wait_for_running() -> str:
    """Wait until some job runs; return its id."""

    def running() -> str | None:
        return next((job.job_id for job in jobs.list_jobs() if job.state is JobState.RUNNING), None)

    found = wait_until(running, "a job to run", DEADLINE_S)
    assert found is not None
    return found


def _copy_of_example(directory: Path) -> str:
    """Link the example beside the job file; a relative workdir is what is sent to the hosts."""
    target = directory / "gpt"
    if not target.exists():
        target.mkdir()
        for path in EXAMPLE.iterdir():
            if path.is_file():
                (target / path.name).write_bytes(path.read_bytes())
    return "gpt"
