"""What goes wrong with collectives, drawn as a tree.

CollectiveError              what ranks called does not go together, or cannot be done
├── MismatchError            ranks called different things
├── PendingError             a result was read before all ranks had called
└── ThreadRefusedError       the system has no thread for what is not waited for (a RuntimeError)
CollectiveTimeoutError       ranks did not answer in time (a TimeoutError)
"""

from __future__ import annotations

from collections.abc import Iterable


class CollectiveError(ValueError):
    """What was called cannot be done. The communicator stays usable."""


class MismatchError(CollectiveError):
    """Ranks called different things; every one of them is told so, by this."""


class PendingError(CollectiveError):
    """A result was read that waits for ranks which have not called yet."""


class ThreadRefusedError(CollectiveError, RuntimeError):
    """The system has no thread for what would not have been waited for: it was not begun."""


class CollectiveTimeoutError(TimeoutError):
    """Ranks did not answer in time.

    Args:
        message: what timed out.
        missing: the ranks that were waited for; they are in its notes, too.
    """

    def __init__(self, message: str, missing: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.missing: tuple[int, ...] = tuple(missing)
        if self.missing:
            # As `add_note` of Python 3.11, which prints them, does.
            vars(self)["__notes__"] = [f"missing: {named(self.missing)}"]


START_AGAIN = (
    "start the job again from its last checkpoint, as dttui does by itself with `recovery: {max_restarts: 3}`, or go "
    "over gloo, of which the ranks that are left go on by `shrink`"
)
"""What to do about a rank that is lost, where the others cannot go on."""


def named(ranks: Iterable[int]) -> str:
    """Return ranks in words: `rank 3`, `ranks 1, 2`, `ranks 1, 2, 3 and 5 others`."""
    found = sorted(ranks)
    shown = ", ".join(map(str, found[:8]))
    if len(found) > 8:
        shown += f" and {len(found) - 8} others"
    return f"{'rank' if len(found) == 1 else 'ranks'} {shown}"
