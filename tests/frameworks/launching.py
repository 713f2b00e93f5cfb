"""Launching the example of a framework on the embedded cluster, and reading what came of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.integration.headless import dttui, result_of

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE_S = 300.0


@dataclass(frozen=True)
class Ended:
    """A job that succeeded."""

    result: dict[str, Any]
    """What `dttui --apply --output json` printed."""
    directory: Path
    """Of the job, on the login node."""
    metrics: list[dict[str, Any]]
    """All lines of metrics, as they came."""

    def losses(self, rank: int = 0) -> dict[int, float]:
        """Return the losses that a rank has told, by step."""
        return {line["step"]: line["loss"] for line in self.metrics if line["rank"] == rank and "loss" in line}

    def log(self, node: str, process: int | str, stream: str = "out") -> str:
        """Return what a process of a node has written, a rank by its number."""
        return (self.directory / f"logs/0/{node}/{process}.{stream}").read_text()

    def on_host(self, node: str, demo_root: Path) -> Path:
        """Return the attempt's directory on a node of the embedded cluster."""
        return demo_root / node / "jobs" / str(self.result["job_id"]) / "0"


def example(name: str) -> dict[str, Any]:
    """Return the job of an example, for a test to change."""
    job: dict[str, Any] = yaml.safe_load((EXAMPLES / name / "job.yaml").read_text(encoding="utf-8"))
    return job["distributed_training"]  # type: ignore[no-any-return]  # YAML is untyped


def slots(counts: dict[str, int]) -> dict[str, Any]:
    """Return the section `cluster` with so many GPUs of each node, the first being the master."""
    return {
        "nodes": [
            {"id": name, "role": "worker" if index else "master", "resources": {"gpu": {"count": count}}}
            for index, (name, count) in enumerate(counts.items())
        ]
    }


def apply(
    directory: Path,
    name: str,
    job: dict[str, Any],
    python: Path,
    *,
    env: Mapping[str, str] | None = None,
    more: Iterable[Path] = (),
) -> Ended:
    """Run a job in the directory of an example by an interpreter, to SUCCEEDED.

    Args:
        directory: an empty one, for the job file and the script.
        name: the example's.
        job: what stands below `distributed_training`.
        python: interpreter of the ranks.
        env: variables of the ranks.
        more: files to lay beside those of the example.
    """
    work = directory / "work"
    shutil.copytree(EXAMPLES / name, work, ignore=shutil.ignore_patterns("__pycache__"))
    for source in more:
        shutil.copy(source, work)
    job["run"] = {**job["run"], "workdir": "work", "python": str(python), "env": dict(env or {})}
    if job["framework"] != "tensorflow":
        job.setdefault("require_process_group", True)  # Else ranks that never met would succeed as well.
    path = directory / "job.yaml"
    path.write_text(yaml.safe_dump({"distributed_training": job}, sort_keys=False))
    done = dttui("--demo", "--apply", path, "--output", "json", deadline_s=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(done)
    assert result["state"] == "SUCCEEDED"
    home = Path(result["directory"])
    told = home / "telemetry/metrics.jsonl"
    lines = told.read_text().splitlines() if told.exists() else []
    return Ended(result, home, [json.loads(line) for line in lines])
