"""Three isolated hosts to play with, until Ctrl-C: `python -m tests.lab INVENTORY.YAML` writes their inventory."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from tests.lab.fixtures import missing_requirement, three_hosts


def main() -> int:
    """Start the hosts, say how to reach them, and wait."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m tests.lab INVENTORY.YAML\n")
        return 2
    reason = missing_requirement()
    if reason is not None:
        sys.stderr.write(f"the test cluster {reason}\n")
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with three_hosts() as lab:
        inventory = lab.inventory(Path(sys.argv[1]))
        for host in lab.values():
            print(
                f"ssh -i {lab.client_key} -o UserKnownHostsFile={lab.known_hosts} root@{host.address}   # {host.name}"
            )
        print(
            f"dttui agents deploy --inventory {inventory}\ndttui --inventory {inventory}\nCtrl-C ends them all",
            flush=True,
        )
        try:
            signal.pause()
        except KeyboardInterrupt:
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
