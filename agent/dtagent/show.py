"""`dtagent facts`: what the daemon would tell, printed for the person on the host."""

from __future__ import annotations

import json

from dtagent import facts as host_facts
from dtagent.nvml import Nvml
from dtagent.protocol.rpc import to_wire


def facts(pythons: list[str]) -> int:
    """Print the facts of this host and of the interpreters named."""
    print(json.dumps(to_wire(host_facts.collect(pythons, Nvml())), indent=2, ensure_ascii=False))
    return 0
