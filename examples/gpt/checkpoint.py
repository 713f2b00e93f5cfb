"""Checkpoints that survive a crash at any moment: DIR/step-00000050/state.pt first, its COMPLETE mark last.

Rank 0 alone writes and reads them, so the directory needs to exist on its host only.
"""

from __future__ import annotations

import io
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def save(directory: Path, step: int, state: dict[str, Any], keep: int) -> None:
    """Write `state` as the checkpoint of `step`, then remove all complete ones but the newest `keep`."""
    place = directory / f"step-{step:08d}"
    place.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    _write_durably(place / "state.pt", buffer.getvalue())
    _write_durably(place / "COMPLETE", b"")
    for old in _complete(directory)[:-keep]:
        (old / "COMPLETE").unlink()
        shutil.rmtree(old)


def newest_complete(directory: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    return next(reversed(_complete(directory)), None)


def load_everywhere(checkpoint: Path | None, device: torch.device) -> dict[str, Any] | None:
    """Give every rank what rank 0 read from `checkpoint`; `None` where it has none. All ranks call this together.

    Raises:
        OSError: rank 0 cannot read it.
        ValueError: it is damaged.
    """
    data = (checkpoint / "state.pt").read_bytes() if checkpoint else b""
    size = torch.tensor([len(data)], device=device)
    dist.broadcast(size, src=0)
    if not size.item():
        return None
    content = torch.zeros(int(size.item()), dtype=torch.uint8)
    if data:
        content = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    content = content.to(device)
    dist.broadcast(content, src=0)
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(bytes(content.tolist())), map_location=device, weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ValueError(f"{checkpoint or 'the file of rank 0'} is damaged: {error}") from error
    return state


def _complete(directory: Path) -> list[Path]:
    return sorted(mark.parent for mark in directory.glob("step-????????/COMPLETE"))


def _write_durably(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    partial.rename(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
