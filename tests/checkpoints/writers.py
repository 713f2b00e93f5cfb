"""Writers that are there with torch alone: each saves a state whose numbers are all its step, and loads it again."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

ROOT = Path(__file__).parents[2]
KEEP = 2


class Writer(NamedTuple):
    """One way to save."""

    save: Callable[[Path, int], object]
    """Saves a step below a directory."""
    load: Callable[[Path], int]
    """Loads what was found; returns its step. AssertionError: it is a mixture of several."""
    in_place: bool = False
    """Whether each is written over the one before, so that there may be none."""


def state_of(step: int) -> dict[str, Any]:
    """Return a state of a step."""
    return {"step": step, "model": {"weight": torch.full((300,), float(step)), "bias": torch.full((30,), float(step))}}


def step_of(state: dict[str, Any]) -> int:
    """Return the step of a state, all of which must be of that."""
    step = int(state["step"])
    assert all(bool((tensor == step).all()) for tensor in state["model"].values()), f"a mixture at step {step}"
    return step


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpt_checkpoint", ROOT / "examples/gpt/checkpoint.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


EXAMPLE = _example()


def _load_file(path: Path) -> int:
    return step_of(torch.load(path, weights_only=True))


def save_sharded(directory: Path, step: int) -> None:
    """Save by torch.distributed.checkpoint."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(state_of(step), checkpoint_id=directory, no_dist=True)


def load_sharded(path: Path) -> int:
    """Load what that saved."""
    state = state_of(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(state, checkpoint_id=path, no_dist=True)
    return step_of(state)


WRITERS = {
    "example": Writer(
        lambda place, step: EXAMPLE.save(place, step, state_of(step), KEEP),
        lambda path: _load_file(path / "state.pt"),
    ),
    "shards": Writer(lambda place, step: save_sharded(place / f"step-{step}", step), load_sharded),
    "shards-in-place": Writer(lambda place, step: save_sharded(place, step), load_sharded, in_place=True),
    "file": Writer(lambda place, step: torch.save(state_of(step), place / f"model_{step}.pt"), _load_file),
    "file-in-place": Writer(
        lambda place, step: torch.save(state_of(step), place / "ckpt.pt"), _load_file, in_place=True
    ),
}
