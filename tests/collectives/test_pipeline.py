"""Segments that overlap rounds give what rounds one after another do, though memory is read when it is received."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from dtagent.payload.collectives.pipeline import Pipeline
from dtagent.payload.collectives.requests import OPS, Request, agree, schedule, vector_of
from dtagent.payload.collectives.schedules import ALGORITHMS, Collective

DEADLINE_S = 20


class Wires:
    """Messages that stay in the sender's memory until the receiver asks for them, as gloo's do."""

    def __init__(self, may_go: Callable[[Wires, tuple[int, int]], bool] = lambda wires, pair: True) -> None:
        """Take whether the next message of a pair (sender, receiver) is let go already."""
        self.lock = threading.Lock()
        self.may_go = may_go
        self.gone: dict[tuple[int, int], int] = defaultdict(int)
        self.sent: dict[int, int] = defaultdict(int)
        self.offers: dict[tuple[int, int], deque[tuple[torch.Tensor, threading.Event]]] = defaultdict(deque)
        self.asked: dict[tuple[int, int], deque[tuple[torch.Tensor, threading.Event]]] = defaultdict(deque)
        self.sizes: list[int] = []

    def send(self, rank: int, part: torch.Tensor, peer: int) -> Callable[[], None]:
        self.sizes.append(len(part))
        self.sent[rank] += 1
        return self._post(self.offers[rank, peer], part)

    def receive(self, rank: int, part: torch.Tensor, peer: int) -> Callable[[], None]:
        return self._post(self.asked[peer, rank], part)

    def _post(self, line: deque[Any], part: torch.Tensor) -> Callable[[], None]:
        done = threading.Event()
        with self.lock:
            line.append((part, done))
            for pair in list(self.offers):
                while self.offers[pair] and self.asked[pair] and self.may_go(self, pair):
                    (data, gone), (place, come) = self.offers[pair].popleft(), self.asked[pair].popleft()
                    place.copy_(data)
                    self.gone[pair] += 1
                    gone.set()
                    come.set()

        def wait() -> None:
            assert done.wait(DEADLINE_S)

        return wait


def carried_out(
    kind: Collective, algorithm: str, ranks: int, elements: int, wires: Wires | None = None
) -> tuple[list[torch.Tensor], Wires]:
    """Return the vectors that ranks end with, each in a thread of its own."""
    wires, hosts = wires or Wires(), [range(ranks // 2), range(ranks // 2, ranks)] if ranks > 1 else None
    requests = [Request(kind, (elements,), torch.int64, "sum", 0, algorithm)] * ranks
    layout = agree(requests)
    vectors = [vector_of(torch.arange(elements) + rank, layout, rank, 0) for rank in range(ranks)]

    def work(rank: int) -> None:
        Pipeline(
            rank,
            vectors[rank],
            OPS["sum"],
            lambda part, peer: wires.send(rank, part, peer),
            lambda part, peer: wires.receive(rank, part, peer),
            segment_bytes=24,
        ).run(schedule(requests[rank], layout, rank, hosts))

    threads = [threading.Thread(target=work, args=[rank], daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    return vectors, wires


@pytest.mark.parametrize("algorithm", ALGORITHMS[Collective.ALL_REDUCE])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_an_all_reduce_in_segments(algorithm: str, ranks: int) -> None:
    vectors, wires = carried_out(Collective.ALL_REDUCE, algorithm, ranks, 50)
    expected = torch.arange(50) * ranks + sum(range(ranks))
    assert all(torch.equal(vector, expected) for vector in vectors)
    assert max(wires.sizes, default=0) <= 24


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_what_is_gathered_and_broadcast_in_segments(ranks: int) -> None:
    for kind in (Collective.BROADCAST, Collective.ALL_GATHER, Collective.GATHER):
        for algorithm in ALGORITHMS[kind]:
            vectors, _wires = carried_out(kind, algorithm, ranks, 20)
            whole = [torch.arange(20) + rank for rank in range(ranks)]
            expected = whole[0] if kind is Collective.BROADCAST else torch.cat(whole)
            everywhere = vectors if kind is not Collective.GATHER else vectors[:1]
            assert all(torch.equal(vector, expected) for vector in everywhere)


def test_a_rank_hands_on_what_has_come_of_a_part_before_all_of_it_has() -> None:
    """Of 4 segments a part in a ring, the last of the first round goes once the second round has begun."""
    ranks, segments = 3, 4
    elements = ranks * segments * 3  # 24 bytes hold three.

    def may_go(wires: Wires, pair: tuple[int, int]) -> bool:
        return pair != (0, 1) or wires.gone[pair] != segments - 1 or wires.sent[1] > segments

    vectors, wires = carried_out(Collective.ALL_REDUCE, "ring", ranks, elements, Wires(may_go))
    assert wires.gone[0, 1] == 2 * (ranks - 1) * segments
    assert all(torch.equal(vector, torch.arange(elements) * ranks + 3) for vector in vectors)
