"""What `dttui bench` runs on every rank, as `python -m dttui_collectives.measuring`: times links and collectives.

A message goes there and back between the first ranks of two hosts, of several pairs at once where they share nothing;
then native all-reduces inside each host, and collectives of all ranks together, by torch and by each algorithm of the
operators. Sizes grow as long as time and `--max` allow; each has a share of the time, and what it does not need is the
next one's. Rank 0 prints first how many results there may be, then each in a line of JSON behind `MARK`, and what is
left out; what is made of them is dttui's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import socket
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

from .communicator import DistributedCommunicator
from .pair_rounds import Pair, pairs_of, rounds_of
from .plain_tcp import TCP_BYTES, answer, ask
from .timed_collectives import ELEMENT, USUAL, SizedWork, timed_collectives

MARK = "DTTUI_BENCH "
SMALLEST, GROWTH = 8, 4
"""Bytes of the first size, and by what the next size is larger."""
ONE_S = 1.0
"""How long one size is repeated."""
LONGEST_S = 4.0
"""What is expected to take longer once is not begun."""
MOST_TRIALS, FEW = 50, 6
PAIRS_UNTIL, INSIDE_UNTIL, USUAL_UNTIL = 0.5, 0.65, 0.85
"""Of the time, by when the pairs are to be done, the insides of hosts, and the usual collectives of all ranks; other
algorithms have the rest, and not what is left over: a bench of slow links is not to take longer for them."""
TIMEOUT_S = 120.0


def typical(seconds: Sequence[float]) -> float:
    """Return the median of trials; of a few the fastest, as whatever disturbs one makes it slower."""
    return min(seconds) if len(seconds) < FEW else statistics.median(seconds)


def _nothing(size: int, *, has_room: bool = True) -> SizedWork:
    return SizedWork(size, lambda: None, lambda: None, lambda: 0, has_room)


def _if_there_is_room(make: Callable[[int], SizedWork], size: int) -> SizedWork:
    """Return the work of a size; work that is nothing where its tensors find no memory."""
    try:
        return make(size)
    except (MemoryError, RuntimeError) as error:
        # Of a CPU torch raises a plain RuntimeError, and it is told by its words alone.
        if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error):
            return _nothing(size, has_room=False)
        raise


class Bench:
    """Measures, on one rank."""

    def __init__(self, largest: int, limit_s: float) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.largest = largest
        self.began_at, self.limit_s = time.monotonic(), limit_s
        self.is_whole = True
        """Whether nothing was left out for want of time or memory."""
        is_nccl = "nccl" in str(dist.get_backend())
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if is_nccl else torch.device("cpu")
        self.host_of = [int(host) for host in self.agreed(float(os.environ["DTTUI_NODE_RANK"]))]
        self.hosts = sorted(set(self.host_of))
        comm = DistributedCommunicator(self.rank, self.ranks, timeout_s=TIMEOUT_S)
        self.collectives = timed_collectives(comm, self.device)

    def agreed(self, mine: float) -> list[float]:
        """Return what each rank brings."""
        told = torch.zeros(self.ranks, dtype=torch.float64, device=self.device)
        told[self.rank] = mine
        dist.all_reduce(told)
        found: list[float] = told.tolist()
        return found

    def tell(self, **record: object) -> None:
        """Print a result, once."""
        if self.rank == 0:
            print(MARK + json.dumps(record), flush=True)

    def sizes(self) -> Iterator[int]:
        """Yield bytes, up to the largest."""
        size = SMALLEST
        while size < self.largest:
            yield size
            size *= GROWTH
        yield self.largest

    def begin(self, pairs: int) -> None:
        """Tell what is measured: by what, over which interface of each host, and how many results there may be."""
        interfaces: list[str] = [""] * self.ranks
        dist.all_gather_object(interfaces, _interface())
        kinds = pairs + sum(count > 1 for count in Counter(self.host_of).values()) + len(self.collectives)
        of_hosts = [interfaces[self.host_of.index(host)] for host in self.hosts]
        total = kinds * len(list(self.sizes()))
        self.tell(kind="begin", backend=dist.get_backend(), ranks=self.ranks, interfaces=of_hosts, total=total)

    def full(self, elements: int, value: float) -> torch.Tensor:
        """Return a tensor of float32."""
        return torch.full((elements,), value, device=self.device)

    def once(self, piece: SizedWork) -> float:
        """Return the seconds of one turn."""
        piece.prepare()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        began = time.perf_counter()
        piece.work()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - began

    def until(self, share: float) -> float:
        """Return when a share of the time is over, by `time.monotonic`."""
        return self.began_at + share * self.limit_s

    def is_past(self, ends_at: float) -> bool:
        """Return whether that is over on any rank, by `time.monotonic`: all ranks find the same."""
        return max(self.agreed(time.monotonic() - ends_at)) > 0

    def grow(
        self,
        parties: Sequence[Sequence[int]],
        ends_at: float,
        make: Callable[[int], SizedWork],
        keep: Callable[[int, int, list[float], list[float]], None],
    ) -> None:
        """Measure one size after another, of ranks that work together, several such parties at once.

        All ranks come to the same decisions, as they know each other's times. A party that is too slow for the next
        size stops there, and the others go on.

        Args:
            parties: their ranks; no rank is in two.
            ends_at: when no size is begun any more, by `time.monotonic`.
            make: returns this rank's work of a size.
            keep: gets the number of a party, the size, and of each rank the seconds and the wrong elements.
        """
        mine = next((number for number, party in enumerate(parties) if self.rank in party), None)
        going = list(range(len(parties)))
        sizes = list(self.sizes())
        for done, size in enumerate(sizes):
            piece = _if_there_is_room(make, size) if mine in going else _nothing(size)
            dist.barrier()
            going, without = self._with_room(parties, going, piece, size)
            self._leave_out(without * (len(sizes) - done))
            if not going:
                return
            self.once(piece)
            first = self.once(piece)
            taken, is_late = self.agreed(first), self.is_past(ends_at)
            took = {number: max(taken[rank] for rank in parties[number]) for number in going}
            trials = min(MOST_TRIALS, max(1, int(ONE_S / max(took[mine], 1e-6)))) if mine in took else 1
            seconds = typical([first, *(self.once(piece) for _trial in range(trials))])
            of_ranks, wrong, told = self.agreed(seconds), self.agreed(piece.wrong()), int(max(self.agreed(piece.size)))
            for number in going:
                keep(number, told, of_ranks, wrong)
            if size == self.largest:
                return
            left = [] if is_late else [number for number in going if took[number] * GROWTH <= LONGEST_S]
            self._leave_out((len(going) - len(left)) * (len(sizes) - done - 1))
            going = left
            if not going:
                return

    def _with_room(
        self, parties: Sequence[Sequence[int]], going: Sequence[int], piece: SizedWork, size: int
    ) -> tuple[list[int], int]:
        """Return which parties have memory for a size, and how many have not; tell of hosts that lack it."""
        short = self.agreed(not piece.has_room)
        for host in sorted({self.host_of[rank] for rank in range(self.ranks) if short[rank]}):
            self.tell(kind="memory", host=host, size=size)
        left = [number for number in going if not any(short[rank] for rank in parties[number])]
        return left, len(going) - len(left)

    def _leave_out(self, results: int) -> None:
        """Tell how many results will not come."""
        if results:
            self.is_whole = False
            self.tell(kind="left-out", results=results)

    def pairs(self, between: Sequence[Pair], ends_at: float) -> None:
        """Measure what goes there and back between the first ranks of two hosts, of several pairs at once."""
        parties = [(self.host_of.index(here), self.host_of.index(there)) for here, there in between]
        first, second = next((party for party in parties if self.rank in party), (-1, -1))

        def make(size: int) -> SizedWork:
            if first < 0:
                return _nothing(size)
            sent, got = self.full(size // ELEMENT, 1.0), self.full(size // ELEMENT, 0.0)

            def work() -> None:
                if self.rank == first:
                    dist.send(sent, second)
                    dist.recv(got, second)
                else:
                    dist.recv(got, first)
                    dist.send(got, first)

            return SizedWork(size, lambda: None, work, lambda: int((got != 1.0).sum()))

        def keep(number: int, size: int, seconds_of: list[float], wrong: list[float]) -> None:
            asks, answers = parties[number]
            row = {"size": size, "seconds": seconds_of[asks] / 2, "wrong": int(wrong[asks] + wrong[answers])}
            self.tell(kind="pair", between=list(between[number]), **row)

        self.grow(parties, ends_at, make, keep)

    def tcp(self, between: Sequence[Pair]) -> None:
        """Measure a plain TCP connection between two hosts, which has nothing of torch in it; tell none that fails."""
        parties = [(self.host_of.index(here), self.host_of.index(there)) for here, there in between]
        first, second = next((party for party in parties if self.rank in party), (-1, -1))
        secret = int(self.agreed(float(secrets.randbits(52)))[first]).to_bytes(TCP_BYTES, "big")
        address = _addresses()[self.host_of[first]]
        listener, port, seconds = None, 0, 0.0
        with contextlib.suppress(OSError):
            if self.rank == first:
                family = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0][0]
                listener = socket.create_server((address, 0), family=family)
                port = listener.getsockname()[1]
        port = int(self.agreed(float(port))[first])
        with contextlib.suppress(OSError):
            if listener is not None:
                with listener:
                    answer(listener, secret)
            elif self.rank == second and port:
                seconds = ask(address, port, secret)
        told = self.agreed(seconds)
        for pair, (_asked, asks) in zip(between, parties):
            if told[asks] > 0:
                self.tell(kind="tcp", between=list(pair), seconds=told[asks])

    def inside(self, ends_at: float) -> None:
        """Measure the native all-reduce inside each host, in all of them at once."""
        everyone = range(self.ranks)
        members_of = {host: [rank for rank in everyone if self.host_of[rank] == host] for host in self.hosts}
        hosts = [host for host in self.hosts if len(members_of[host]) > 1]
        groups = {host: dist.new_group(members_of[host]) for host in hosts}
        if not groups:
            return
        mine = self.host_of[self.rank]

        def make(size: int) -> SizedWork:
            if mine not in groups:
                return _nothing(size)
            tensor = self.full(size // ELEMENT, 1.0)
            return SizedWork(
                size,
                lambda: tensor.fill_(1.0),
                lambda: dist.all_reduce(tensor, group=groups[mine]),
                lambda: int((tensor != len(members_of[mine])).sum()),
            )

        def keep(number: int, size: int, seconds_of: list[float], wrong: list[float]) -> None:
            members = members_of[hosts[number]]
            seconds = max(seconds_of[rank] for rank in members)
            bad = int(sum(wrong[rank] for rank in members))
            self.row("all_reduce", "native", len(members), size, seconds, bad, hosts[number])

        self.grow([members_of[host] for host in hosts], ends_at, make, keep)

    def row(
        self, op: str, algorithm: str, ranks: int, size: int, seconds: float, wrong: int, host: int | None = None
    ) -> None:
        """Tell of a collective of one size."""
        told = {"op": op, "algorithm": algorithm, "ranks": ranks, "host": host}
        self.tell(kind="collective", **told, size=size, type="float32", seconds=seconds, wrong=wrong)

    def together(self) -> None:
        """Measure collectives of all ranks, one kind after another, each with its part of the time.

        The usual ones have a share of their own, and each one size at least. The others have no more than theirs,
        however early it is; whatever the time is over for is left out.
        """
        ends_at, kinds = self.until(USUAL_UNTIL), len(USUAL)
        for done, (kind, algorithm, make) in enumerate(self.collectives):
            if done == len(USUAL):
                ends_at = min(self.until(1.0), time.monotonic() + (1 - USUAL_UNTIL) * self.limit_s)
                kinds = len(self.collectives)
            if done >= len(USUAL) and self.is_past(ends_at):
                self._leave_out(len(list(self.sizes())))
                continue

            def keep(
                _party: int,
                size: int,
                seconds_of: list[float],
                wrong: list[float],
                op: str = kind.value,
                algorithm: str = algorithm,
            ) -> None:
                self.row(op, algorithm, self.ranks, size, max(seconds_of), int(sum(wrong)))

            self.grow([range(self.ranks)], _part_until(ends_at, kinds - done), make, keep)


def _part_until(ends_at: float, left: int) -> float:
    """Return when the next of several parts is to be done, so that all have the same of the time that is left."""
    now = time.monotonic()
    return now + (ends_at - now) / left


def _planned_backend() -> str:
    """Return what the plan says for all ranks: a host alone does not know whether the others have GPUs."""
    with open(os.environ["DTTUI_CONFIG"], encoding="utf-8") as stream:
        return str(json.load(stream)["backend"])


def _interface() -> str:
    """Return the interface that this rank's process groups use; empty where nothing says one."""
    named = os.environ.get("NCCL_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME") or ""
    return named.lstrip("=").partition(",")[0]


def _addresses() -> list[str]:
    """Return the address of each host, by node rank; of many hosts they are in a file."""
    if "DTTUI_NODE_ADDRESSES" in os.environ:
        return os.environ["DTTUI_NODE_ADDRESSES"].split(",")
    with open(os.environ["DTTUI_NODE_ADDRESSES_FILE"], encoding="utf-8") as stream:
        return stream.read().split()


def main() -> None:
    """Measure all there is, and say whether that was all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--max", type=int, required=True, help="bytes of the largest message")
    parser.add_argument("--limit-s", type=float, required=True, help="after how long no size is begun any more")
    parser.add_argument("--zones", default="", help="of each host, with commas: one pair at a time between two")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)  # Of names that newer versions of torch change.
    torch.set_num_threads(1)
    backend = _planned_backend()
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(backend, timeout=timedelta(seconds=TIMEOUT_S))
    bench = Bench(options.max, options.limit_s)
    zones = options.zones.split(",") if options.zones else []
    pairs = pairs_of(bench.hosts)
    bench.begin(len(pairs))
    rounds = rounds_of(pairs, zones if len(zones) == len(bench.hosts) else [])
    for done, between in enumerate(rounds):
        bench.tcp(between)
        bench.pairs(between, _part_until(bench.until(PAIRS_UNTIL), len(rounds) - done))
    bench.inside(bench.until(INSIDE_UNTIL))
    bench.together()
    bench.tell(kind="end", whole=bench.is_whole)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # Gloo's threads abort a process now and then that takes itself down.


if __name__ == "__main__":
    main()
