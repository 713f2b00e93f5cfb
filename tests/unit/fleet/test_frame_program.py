"""What all pushed programs have: whatever goes wrong on a host is told in a line."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dttui.fleet.deployment import frame_program


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EIO, "system"), (errno.ENOSPC, "disk-full"), (errno.EROFS, "root-read-only")]
)
def test_a_place_that_cannot_even_be_looked_for_is_told(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], number: int, code: str
) -> None:
    def fail() -> str:
        raise OSError(number, os.strerror(number), "/home/me/.local/state/dtagent/roots")

    monkeypatch.setattr(frame_program, "find_root", fail)
    told = frame_program.answer(io.BytesIO(b'{"root": null, "action": "probe"}\n'), {"probe": lambda *_: {}})
    assert told["refusal"] == code
    assert told["path"].startswith("/")
    json.dumps(told)


def test_a_program_that_takes_long_is_ended_once_nobody_listens(tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    words = "import sys; from dttui.fleet.deployment.frame_program import run_tool; run_tool('x', sys.argv[1:], 300)"
    slow = ["sh", "-c", 'echo $$ > "$0"; exec sleep 290', str(started)]
    process = subprocess.Popen(
        [sys.executable, "-c", words, *slow], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        pid = int(started.read_text())
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr is not None
        assert "BrokenPipeError" in process.stderr.read()
    assert not Path(f"/proc/{pid}").exists()
