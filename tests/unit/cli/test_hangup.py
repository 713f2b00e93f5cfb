"""What is printed on a terminal that has just gone, before who watches it has said so."""

from __future__ import annotations

import os
import pty
from pathlib import Path

from dttui.cli.hangup import lost_when_gone


def test_what_is_printed_on_a_terminal_that_has_gone_is_lost_and_no_error() -> None:
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as terminal:
        stream = lost_when_gone(terminal)
        print("rank 0: 步", file=stream)
        assert os.read(ours, 100).decode() == "rank 0: 步\r\n"
        os.close(ours)
        print("rank 0: nobody reads this", file=stream)
        stream.write("nor this, which has no end")
        stream.flush()


def test_a_file_is_written_as_before(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file:
        assert lost_when_gone(file) is file
