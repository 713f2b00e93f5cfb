"""Critical errors (Xid) of the GPUs: from the driver's events, else from the kernel's log where it may be read."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from dataclasses import dataclass
from typing import Any

KERNEL_LOG = "/dev/kmsg"
MOST_EVENTS = 64
"""Taken in at one poll; a GPU that fails in a loop must not keep the sampler."""
MOST_RECORDS = 4096

_XID = re.compile(rb"NVRM: Xid \(PCI:([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)[^)]*\): (\d+)")
_BUS_ID = re.compile(r"([0-9a-fA-F]+):([0-9a-fA-F]+):([0-9a-fA-F]+)")

Address = tuple[int, ...]


@dataclass(frozen=True)
class Seen:
    """The Xids of a GPU so far."""

    count: int
    last: int | None
    """Number of the newest."""


class XidListener:
    """Counts the Xids of each GPU since it is listened to.

    Args:
        nvml: the pynvml module, initialised.
        failures: what pynvml raises where a function fails or is absent.
    """

    def __init__(self, nvml: Any, failures: tuple[type[Exception], ...]) -> None:
        self._nvml = nvml
        self._failures = failures
        self._events: Any = None
        self._by_handle: dict[int, int] = {}
        self._by_address: dict[Address, int] = {}
        self._log: int | None = None
        self._seen: dict[int, Seen] = {}

    def listen(self, index: int, handle: Any) -> None:
        """Begin to count a GPU's; it stays without a count where neither source can be read."""
        if index in self._seen:
            return
        nvml = self._nvml
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            self._by_handle[_address_of(handle)] = index
            self._seen[index] = Seen(0, None)
        except self._failures:
            self._listen_to_kernel(index, handle)

    def seen(self, index: int) -> Seen | None:
        """Return what has come of a GPU; `None` where it cannot be known."""
        return self._seen.get(index)

    def poll(self) -> None:
        """Take in what has come. Does not wait."""
        if self._by_handle:
            self._poll_events()
        if self._log is not None:
            self._poll_kernel(self._log)

    def close(self) -> None:
        """Stop to listen."""
        if self._log is not None:
            os.close(self._log)
            self._log = None
        if self._events is not None:
            with contextlib.suppress(*self._failures):
                self._nvml.nvmlEventSetFree(self._events)
            self._events = None

    def _poll_events(self) -> None:
        for _ in range(MOST_EVENTS):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            # Nothing came, mostly; or a GPU was lost, which its own reading tells.
            except self._failures:
                return
            index = self._by_handle.get(_address_of(event.device))
            if index is not None:
                self._count(index, int(event.eventData))

    def _listen_to_kernel(self, index: int, handle: Any) -> None:
        try:
            bus_id = self._nvml.nvmlDeviceGetPciInfo(handle).busId
        except self._failures:
            return
        if self._log is None:
            try:
                self._log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                return
        found = _BUS_ID.search(bus_id.decode(errors="replace") if isinstance(bus_id, bytes) else bus_id)
        if found:
            self._by_address[tuple(int(part, 16) for part in found.groups())] = index
            self._seen[index] = Seen(0, None)

    def _poll_kernel(self, log: int) -> None:
        for _ in range(MOST_RECORDS):
            try:
                record = os.read(log, 8192)
            except BrokenPipeError:  # The log was quicker than we: what it dropped is lost, and the next is there.
                continue
            except OSError:  # Nothing more, or not for this user.
                return
            found = _XID.search(record)
            if found:
                index = self._by_address.get(tuple(int(part, 16) for part in found.groups()[:3]))
                if index is not None:
                    self._count(index, int(found[4]))
            if not record:
                return

    def _count(self, index: int, number: int) -> None:
        self._seen[index] = Seen(self._seen[index].count + 1, number)


def _address_of(handle: Any) -> int:
    """Return what tells one handle from another: pynvml makes a new pointer to the same structure each time."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
