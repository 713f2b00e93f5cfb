"""The store behind a rendezvous, which asks nobody who he is."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # its own stubs do not say that it exports it
from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousParameters

ABSENT = b"-"
"""What is never kept under any name: asked whether it is there, the store tells what is, and waits for nothing."""
PATIENCE_S = 15.0
"""How long something that nobody of us has written may stand where a word of another node is awaited."""
Listen = Callable[[str, int], "socket.socket | None"]
"""Returns a socket bound to an address and a port."""


class Table:
    """The store that all can write to, as the nodes of the job use it: nothing waits, and a failure is the rendezvous'.

    Args:
        store: a connection.
    """

    def __init__(self, store: TCPStore) -> None:
        self._store = store

    def read(self, name: str) -> bytes | None:
        """Return what is there; `None` for nothing."""
        found = self.exchange(name, ABSENT, ABSENT)
        return None if found == ABSENT else found

    def exchange(self, name: str, expected: bytes, wanted: bytes) -> bytes:
        """Put something in the place of what is expected, empty for nothing; return what is there then.

        Where nothing is, and something was expected, that is what the store returns.
        """
        with _as_connection_error():
            return bytes(self._store.compare_set(name, expected, wanted))  # type: ignore[arg-type]  # it takes both

    def put(self, name: str, value: bytes) -> None:
        """Write, whatever is there."""
        with _as_connection_error():
            self._store.set(name, value)  # type: ignore[arg-type]  # as above


@contextlib.contextmanager
def _as_connection_error() -> Iterator[None]:
    try:
        yield
    except (ValueError, RuntimeError, TimeoutError) as error:
        raise RendezvousConnectionError("The connection to the store of the rendezvous has failed.") from error


def open_store(address: str, port: int, listen: Listen, **options: Any) -> TCPStore:
    """Open a store that listens on one address, or where that cannot be, on all.

    Args:
        address: of this host.
        port: 0 for any that is free.
        listen: binds it.
        **options: more of `TCPStore`.

    Raises:
        OSError: the port is taken.
        RuntimeError: torch cannot listen, or cannot reach itself there.
    """
    bound = listen(address, port)
    if bound is not None:
        port = bound.getsockname()[1]
        options["master_listen_fd"] = bound.detach()
    return TCPStore(address, port, is_master=True, wait_for_workers=False, **options)


def connect(parameters: RendezvousParameters, listen: Listen) -> TCPStore:
    """Open the store, or connect to it. Raises RendezvousConnectionError."""
    host, _, port = parameters.endpoint.strip().rpartition(":")
    host, timeout = host.strip("[]"), read_timeout(parameters)
    try:
        if parameters.get_as_bool("is_host"):
            return open_store(host, int(port), listen, timeout=timeout)
        return TCPStore(host, int(port), is_master=False, timeout=timeout)
    except (OSError, ValueError, RuntimeError) as error:
        raise RendezvousConnectionError(f"The store of the rendezvous cannot be had: {error}") from error


def read_timeout(parameters: RendezvousParameters) -> timedelta:
    """Return how long a node waits for the store, or for a word of another one."""
    return timedelta(seconds=parameters.get_as_int("read_timeout") or 60)
