"""What all pushed programs have: whatever goes wrong on a host is told in a line."""

from __future__ import annotations

import errno
import io
import json
import os

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
