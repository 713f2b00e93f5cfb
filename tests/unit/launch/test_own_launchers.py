"""Launchers in commands that a job starts once a GPU: found in what a shell would run, and in nothing else."""

from __future__ import annotations

import pytest

from dttui.launch.own_launchers import launcher_in


@pytest.mark.parametrize(
    ("text", "launcher"),
    [
        ("torchrun --nproc-per-node 2 train.py", "torchrun"),
        ("/opt/venv/bin/torchrun train.py", "torchrun"),
        ("python -m torch.distributed.run train.py", "python -m torch.distributed.run"),
        ("python3 -u -m torch.distributed.launch train.py", "python3 -u -m torch.distributed.launch"),
        ("A=1 B='c d' torchrun train.py", "torchrun"),
        ("cd work && exec torchrun train.py", "torchrun"),
        ("numactl --localalloc torchrun train.py", "torchrun"),
        ("uv run --with torch accelerate launch train.py", "accelerate launch"),
        ("if true; then\n  accelerate   launch \\\n  train.py\nfi", "accelerate launch"),
        ("deepspeed --hostfile hosts train.py", "deepspeed"),
        ("llamafactory-cli train job.yaml", "llamafactory-cli train"),
        ("axolotl train job.yaml", "axolotl train"),
        ("llamafactory-cli version", None),
        ("# torchrun train.py\npython train.py", None),
        ("echo torchrun", None),
        ("pip install deepspeed", None),
        ("python train.py --launcher torchrun", None),
        ("./torchrun.sh", None),
    ],
)
def test_a_launcher_is_found_where_a_shell_would_run_it(text: str, launcher: str | None) -> None:
    assert launcher_in(text) == launcher
