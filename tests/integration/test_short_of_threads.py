"""A user whose processes are used up, by `ulimit -u`, is told so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOMEBODY = 64_321
"""A user of whom nothing else runs; root itself may start as many as it likes."""
FILES = "+dac_override,+dac_read_search"


def limited(tmp_path: Path, most: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run dttui as a user who may have so many threads and processes; it may read what root may."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv")
    user = f"--reuid={SOMEBODY} --regid={SOMEBODY} --clear-groups --bounding-set=-sys_resource,-sys_admin".split()
    return subprocess.run(
        ["setpriv", *user, f"--inh-caps={FILES}", f"--ambient-caps={FILES}", "prlimit", f"--nproc={most}:{most}",
         sys.executable, "-m", "dttui", "--inventory", str(tmp_path / "inventory.yaml"), *arguments],
        capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("verb", [["envs"], ["agents", "status"], ["envs", "trust", "gpu1"]])
def test_a_verb_that_can_start_no_thread_or_process_says_so_and_what_to_do(
    tmp_path: Path, most: int, verb: list[str]
) -> None:
    (tmp_path / "inventory.yaml").write_text("environments:\n  - {name: gpu1, host: localhost, port: 1}\n")
    done = limited(tmp_path, most, *verb)
    told = done.stdout + done.stderr
    assert "this machine starts no more threads or processes for you" in told
    assert "`ulimit -u`" in told
    assert "internal error" not in told
    assert "Traceback" not in told
    assert done.returncode == 4, told
