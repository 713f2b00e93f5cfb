"""Saves in a loop until it is killed; killed at random moments many times, each time by a seed. Prints what went wrong.

python -m tests.checkpoints.saving_loop WRITER DIRECTORY ROUNDS SEED
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from dtagent.checkpoints.search import newest_complete

from tests.checkpoints.writers import WRITERS


def main() -> None:
    name, place, rounds, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    writer = WRITERS[name]
    chance = random.Random(seed)
    told = place.with_suffix(".steps")
    step, found_any = -1, 0
    for number in range(rounds):
        begun = told.stat().st_size if told.exists() else 0
        child = os.fork()
        if child == 0:
            _save_for_ever(writer.save, place, told, step)
        deadline = time.monotonic() + 60
        while not (told.exists() and told.stat().st_size > begun) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(chance.uniform(0.0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done = told.stat().st_size - 1
        search = newest_complete(place)
        if search.newest is None:
            assert writer.in_place, f"round {number} of seed {seed}: nothing after {done}: {search.passed}"
        else:
            found_any += 1
            loaded = writer.load(Path(search.newest.path))
            assert loaded in (done, done + 1), f"round {number} of seed {seed}: {loaded} after {done}: {search}"
        step = done
    print(json.dumps({"saves": step + 1, "found": found_any}))


def _save_for_ever(save: Callable[[Path, int], Any], place: Path, told: Path, step: int) -> None:
    """Save step after step; the length of a file tells how many are done."""
    with told.open("ab", buffering=0) as notes:
        while True:
            step += 1
            save(place, step)
            notes.write(b".")


if __name__ == "__main__":
    main()
