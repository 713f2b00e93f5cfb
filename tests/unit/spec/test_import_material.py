"""Real command lines and files, imported: against what a careful reader takes from each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from dttui.spec import DocumentError
from dttui.spec.cluster import gpu_ids_of
from dttui.spec.dialects.commands.launcher_options import names
from dttui.spec.importing import Imported, merge, translate_file

MATERIAL = Path(__file__).parents[2] / "material" / "imports"
AS_SCRIPTS = names(
    """
    bash-script deepspeed horovodrun accelerate-launch mpirun python-torch-distributed sbatch srun swift
    torchrun tune wrap-conda wrap-cvd wrap-env wrap-nohup wrap-numactl wrap-time wrap-uv axolotl
    llamafactory-cli
    """
)
"""Kinds that are command lines or shell scripts."""


@dataclass(frozen=True)
class Outcome:
    """What became of a file, and what of that is not as expected."""

    name: str
    kind: str
    verdict: str
    expected: str
    faults: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether it was imported or refused as it should be, and what was taken is what it says."""
        return not self.faults


@cache
def outcomes(half: str) -> tuple[Outcome, ...]:
    directory = MATERIAL / half
    entries: list[dict[str, Any]] = yaml.safe_load((directory / "index.yaml").read_text())
    return tuple(_outcome(directory, entry) for entry in entries if entry["kept"])


def _outcome(directory: Path, entry: dict[str, Any]) -> Outcome:
    expected = entry["expect"]
    name, kind, verdict = entry["name"], entry["kind"], expected["verdict"]
    may_be_other = "accept_also" in expected
    try:
        path = directory / entry["file"]
        imported = merge([translate_file(path.read_bytes(), path.name)], path.stem)
    except DocumentError as error:
        text = str(error)
        is_wrong = verdict == "job" and not may_be_other
        faults = [f"refused: {text[:150]}"] if is_wrong else []
        if "not valid YAML" in text or "unknown key" in text:
            faults.append(f"taken for something else: {text[:150]}")
        return Outcome(name, kind, "refuse", verdict, tuple(faults))
    if verdict == "refuse":
        faults = [] if may_be_other else ["imported, and ought to be refused"]
        return Outcome(name, kind, "job", verdict, tuple(faults))
    return Outcome(name, kind, "job", verdict, tuple(_faults(imported, expected)))


def _faults(imported: Imported, expected: dict[str, Any]) -> list[str]:
    job = imported.job
    run = job.run
    told = [note for note in imported.notes if note.severity.value == "warning"]
    ids = job.resources.gpu.ids if job.resources.gpu is not None else None
    faults = []
    if run is not None:
        command = list(run.command or ())
        program = run.script or run.module or " ".join(command)
        wanted = expected.get("script") or expected.get("module") or ""
        base = wanted.rpartition("/")[2].strip(")\"'`")
        if base and "$" not in base and base not in program and base not in " ".join(command):
            faults.append(f"program: {program!r}, not {wanted!r}")
        arguments = list(run.args) if run.args else command[1:]
        if "args" in expected and not expected.get("own_ranks"):
            missing = [word for word in expected["args"] if "$" not in str(word) and str(word) not in arguments]
            if missing:
                faults.append(f"arguments: without {missing}")
        for key, value in expected.get("env", {}).items():
            if (
                "$" not in str(value)
                and key not in ("GPUS_PER_NODE", "NPROC_PER_NODE", "NNODES")
                and run.env.get(key) != str(value)
                and not (key == "CUDA_VISIBLE_DEVICES" and ids == gpu_ids_of(str(value)))
            ):
                faults.append(f"{key}: {run.env.get(key)!r}, not {value!r}")
    faults += _count_faults(imported, expected)
    needs = expected.get("needs", ()) if expected["verdict"] == "needs" else ()
    if needs and not told:
        faults.append(f"nothing is said to be missing: {needs}")
    return faults


def _count_faults(imported: Imported, expected: dict[str, Any]) -> list[str]:
    job = imported.job
    each = expected.get("per_node")
    gpu = job.resources.gpu
    counts = {node.resources.gpu.number for node in job.cluster.nodes if node.resources and node.resources.gpu}
    faults = []
    if isinstance(each, int):
        count = gpu.number if gpu is not None else None
        if (
            count != each
            and counts != {each}
            and not (count in (0, None) and expected.get("settings", {}).get("use_cpu"))
        ):
            faults.append(f"processes a node: {count or counts}, not {each}")
    nodes = expected.get("nodes")
    if isinstance(nodes, int):
        listed = len(job.cluster.nodes)
        told = next((note.message for note in imported.notes if "how many nodes" in note.message), "")
        found = listed or int(next((word for word in told.replace("–", " ").split() if word.isdecimal()), "1"))
        if found != nodes:
            faults.append(f"nodes: {found}, not {nodes}")
    return faults


def told(half: str, kinds: frozenset[str] | None = None) -> str:
    """Return the rate of a half, and each that is not as expected."""
    chosen = [outcome for outcome in outcomes(half) if kinds is None or outcome.kind in kinds]
    right = sum(outcome.is_right for outcome in chosen)
    by_kind = Counter(outcome.kind for outcome in chosen if not outcome.is_right)
    lines = [
        f"{outcome.name} ({outcome.kind}, {outcome.expected}): {'; '.join(outcome.faults)}"
        for outcome in chosen
        if not outcome.is_right
    ]
    return "\n".join([f"{half}: {right} of {len(chosen)} as expected; {dict(by_kind)}", *lines])


@pytest.mark.parametrize(("half", "least"), [("fit", 0.9), ("end", 0.9)])
def test_real_command_lines_and_files_become_what_they_say(half: str, least: float) -> None:
    found = outcomes(half)
    right = sum(outcome.is_right for outcome in found)
    print(told(half))
    assert right >= least * len(found), told(half)
