"""Interpreters that differ from host to host, by the real preflight on the embedded cluster: the table says who."""

from __future__ import annotations

import json
import re
import sys
import venv
from pathlib import Path

import pytest

from dttui import cli
from dttui import inventory as inventories
from dttui.inventory.demo import demo_inventory
from dttui.inventory.models import Inventory
from tests.integration.headless import shell_job
from tests.processes import ended_agents as ended_agents

TORCH = {"pytorch-dev-env": "2.13.0", "llm-training-env": "2.12.1", "nlp-research-lab": "2.13.0"}


def interpreter(directory: Path, torch: str) -> str:
    """Make a virtual environment that has torch as far as its package's metadata says."""
    venv.create(directory, symlinks=True, with_pip=False)
    (packages,) = directory.glob("lib/python*/site-packages")
    metadata = packages / f"torch-{torch}.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    return str(directory / "bin/python")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job of three hosts of the embedded cluster, each with an interpreter of its own."""
    pythons = {name: interpreter(tmp_path / name, torch) for name, torch in TORCH.items()}

    def inventory(root: Path, examples: Path, _python: str) -> Inventory:
        demo = demo_inventory(root, examples, sys.executable)
        own = tuple(item.model_copy(update={"python": pythons[item.name]}) for item in demo.environments)
        return demo.model_copy(update={"environments": own})

    monkeypatch.setattr(inventories, "demo_inventory", inventory)
    return shell_job(tmp_path, dict.fromkeys(TORCH, 1), "true")


def test_the_drift_table_names_the_host_whose_torch_differs(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Within 60 s, in the table for a person and in the document; other hosts and packages are not blamed."""
    assert cli.main(["--demo", "preflight", str(job), "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (drift,) = document["drift"]
    assert drift["others"] == {"2.12.1": ["llm-training-env"]}
    assert (drift["usual"], drift["usual_nodes"]) == ("2.13.0", ["pytorch-dev-env", "nlp-research-lab"])
    assert [item["subject"] for item in document["findings"] if item["code"] == "drift"] == ["torch"]
    assert cli.main(["--demo", "preflight", str(job)]) == 0
    assert re.search(
        r"differs +most have +others\ntorch +2\.13\.0 \(2\) +2\.12\.1: llm-training-env\n", capsys.readouterr().out
    )
