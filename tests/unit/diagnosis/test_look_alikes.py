"""What only looks like a cause, in an exception or a printed line, is told as none or as what it is."""

from __future__ import annotations

import pytest

from dttui.diagnosis.causes import recognise
from dttui.diagnosis.exceptions import chain

LOOK_ALIKES = [
    ("ValueError: the answer must not be 'CUDA out of memory'", None),
    ("KeyError: 'CUDA out of memory'", None),
    ("RuntimeError: my cache ran out of memory slots", None),
    ("ValueError: cannot convert float NaN to integer", None),
    ("KeyError: 'nan_loss'", None),
    ("ValueError: loss_fn must be given", None),
    ("ValueError: unknown norm: info", None),
    ("BrokenPipeError: [Errno 32] Broken pipe", None),
    ("RuntimeError: the peer review of Connection closed by peer", None),
    ("TimeoutError: The read operation timed out", None),
    ("RuntimeError: Timed out waiting for the license server", None),
    ("EOFError: EOF when reading a line", None),
    ("RuntimeError: Sizes of tensors must match except in dimension 0.", None),
    ("ValueError: No module named in the config", None),
    ("ValueError: port: 29500 is not a good choice", None),
    ("_pickle.PicklingError: Can't pickle <function f>", None),
    ("FileExistsError: [Errno 17] File exists: '/ckpt'", None),
    ("AssertionError", None),
    # Close to another cause, and not it.
    ("ImportError: libGL.so.1: cannot open shared object file: No such file or directory", "shared-library"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/dev/shm/x'", "missing-file"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/data/nan loss is nan'", "missing-file"),
]

HARMLESS_LINES = [
    ("train.py: error: the first step is slow", 0),
    ("INFO retrying: Connection refused", 1),
    ("step 4 loss nan", 1),
    ("WARNING: No space left on device was handled", 1),
    ("I will now say that no module named x", 1),
    ("cannot start the engine", 1),
]


@pytest.mark.parametrize(("text", "code"), LOOK_ALIKES)
def test_what_only_looks_like_a_cause_is_none(text: str, code: str | None) -> None:
    spoken, _said = recognise([item.text for item in chain(text, None, ())], (), 1)
    assert (None if spoken is None else spoken.row.code) == code


@pytest.mark.parametrize(("line", "exit_code"), HARMLESS_LINES)
def test_a_line_that_only_speaks_of_a_trouble_is_no_cause(line: str, exit_code: int) -> None:
    assert recognise([], [line], exit_code) == (None, None)
