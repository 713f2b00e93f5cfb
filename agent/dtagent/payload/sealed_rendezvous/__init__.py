"""torchrun's elastic rendezvous, to which only nodes with the key of the attempt can write; torch only.

c10d keeps its state as a pickle in a store that asks nobody who he is. Here whatever is read from that store is
verified before anything is made of it: an envelope holds the HMAC-SHA256 of the rendezvous' id, of the name that it is
kept under, which names the round, and of what is in it. The state also counts how often each node has written it, so
that an earlier one is known by who reads it, and by who wrote what it lacks. What was deleted, replayed or overwritten
is put back at once, and again by whoever has a newer one; where that cannot be done, all ends with `TamperedError`.

The ranks of each round meet in a store of their own, which torchrun of the first node opens once it knows that all
nodes of the round are still there: else all gather anew. A node that was cut off for so long that others went on
without it leaves by itself: torchrun would take it back, and dttui ends what it gave up, in the middle of that.
"""

from __future__ import annotations

from .handler import register

__all__ = ["register"]
