"""One end of one copy, as a process of its own: what it is to do comes on stdin, since a key is on no command line."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import threading

from dacite import Config, from_dict

from dtagent.protocol.replication import SendRequest, TakeReply, TakeRequest
from dtagent.protocol.rpc import to_wire
from dtagent.replication.sending import send
from dtagent.replication.taking import MOST_STRANGERS, take
from dtagent.system.interfaces import narrow, reserve_port
from dtagent.system.units import MIB

MEMORY_BYTES = 1024 * MIB
NO_PORT = 3
ABANDONED = 4
_DECODING = Config(cast=[tuple])


def main(mark: str, what: str) -> int:
    """Do it; print lines with the mark: a `TakeReply` once it listens, a `SendReply` at the end."""
    words = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    with contextlib.suppress(OSError):
        os.nice(10)  # Of a rank that trains it takes nothing.
    if what == "send":
        print(mark + json.dumps(to_wire(send(from_dict(SendRequest, words, _DECODING)))), flush=True)
        return 0
    request = from_dict(TakeRequest, words, _DECODING)
    held = reserve_port(*request.port_range)
    if held is None:
        return NO_PORT
    try:
        bound = narrow(held, request.address)
    except OSError:  # Somebody has taken it in between.
        return NO_PORT
    bound.listen(MOST_STRANGERS)  # Before it is told: the other host may come at once.
    print(mark + json.dumps(to_wire(TakeReply(bound.getsockname()[1]))), flush=True)
    take(request, bound)
    return 0


def _end_with_stdin() -> None:
    """Whoever wanted this has gone: what has come so far stays."""
    sys.stdin.read()
    os._exit(ABANDONED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
