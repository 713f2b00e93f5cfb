"""What the scripts of the examples refuse, rather than train nothing, or otherwise than they were told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.launching import EXAMPLES


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("resnet", {"batch_size": 64, "settings": {"images": 32}}, "a batch of 64 images cannot be had of 32"),
        (
            "bert",
            {"batch_size": 10, "strategy": {"pipeline_parallel": {"micro_batch_size": 4}}},
            "10 samples make no whole micro-batches of 4 for each pipeline",
        ),
        (
            "bert",
            {"strategy": {"pipeline_parallel": {"schedule": "Interleaved"}}},
            "Interleaved needs several stages a rank, which this script has not: 1F1B or GPipe",
        ),
        ("command", {"dataset": {"path": "short.txt"}}, "short.txt holds 5 bytes, too few for samples of 64"),
    ],
)
def test_what_would_train_nothing_or_otherwise_than_it_was_told_is_refused(
    name: str, config: dict[str, object], message: str, tmp_path: Path
) -> None:
    (tmp_path / "short.txt").write_text("short")
    (tmp_path / "config.json").write_text(json.dumps(config))
    own = {"DTTUI_CONFIG": "config.json", "DTTUI_CHECKPOINT_DIR": str(tmp_path / "kept"), "MASTER_ADDR": "127.0.0.1"}
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "0"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name / "train.py")],
        cwd=tmp_path,
        env={**os.environ, **own, **place},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("kept/*/COMPLETE"))
