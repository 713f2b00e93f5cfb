"""How often Python looks for garbage in a process of dttui, which holds much for long and little of it in circles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 10_000
"""Objects made and not freed between two looks at the youngest. With Python's own 700, all that thousands of hosts have
made is looked through again and again, half a second each time, in which no key is answered and no host is found."""


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Import inside without any look for garbage, since what is imported stays; from the end on looks are rare."""
    gc.disable()
    try:
        yield
    finally:
        gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
        gc.enable()
