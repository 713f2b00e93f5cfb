"""How a rendezvous ends that cannot go on, and how it is told what was altered."""

from __future__ import annotations

from collections.abc import Callable

from torch.distributed.elastic.rendezvous import RendezvousStateError

Report = Callable[[str, str, bool], None]
"""Takes what was altered, how, and whether that was put right."""


class TamperedError(RendezvousStateError):
    """Somebody without the key wrote, and it cannot be put right.

    Args:
        what: was altered: `state`, or the name of what nodes tell each other.
        how: `forged`, `replayed`, `deleted`, or `split` where two nodes went on from different states.
    """

    def __init__(self, what: str, how: str) -> None:
        super().__init__(f"the rendezvous was tampered with: {what} {how}")
        self.what = what
        self.how = how


class LeftBehindError(RendezvousStateError):
    """Others went on without this node while it could not be heard."""

    def __init__(self, silent_s: float) -> None:
        super().__init__(f"cut off from the rendezvous for {silent_s:.0f} s, in which others went on without this node")
