"""Makes the script of an example take its time over each step: a test that is held up finds it at work all the same."""

from __future__ import annotations

from pathlib import Path

_PAUSES = """\
import os, time

_write = os.write


def write(descriptor, data):
    if b'"step"' in data and int(os.environ["DTTUI_ATTEMPT"]) < {attempts}:
        time.sleep({pause_s})
    return _write(descriptor, data)


os.write = write
"""
_FIRST = "from __future__ import annotations\n"


def slow_down(script: Path, attempts: int = 1, pause_s: float = 0.1) -> None:
    """Have a copy of an example's script pause at each report, in so many attempts from the first one on.

    What it computes stays the same.
    """
    text = script.read_text(encoding="utf-8")
    assert _FIRST in text
    script.write_text(text.replace(_FIRST, f"{_FIRST}\nimport slowly\n", 1), encoding="utf-8")
    script.with_name("slowly.py").write_text(_PAUSES.format(attempts=attempts, pause_s=pause_s))
