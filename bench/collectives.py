"""Times the collective operators: `python bench/collectives.py`. Medians, and what issue 16 asks for beside them.

Four processes of this machine over gloo, on its loopback. What is compared takes turns in one run, so that a busy
machine slows both alike, and a ratio is the median of those of all turns: the usual all-reduce of 8 B to 64 KiB and the
ring of 1 to 64 MiB, both by our messages, with gloo's own, in place; 200 small tensors together and one by one. Bus
bandwidth is that of nccl-tests (PERFORMANCE.md): 2(n-1)/n of the size by the time, on the rank that took longest.
`simulated` runs a ring of a thousand ranks on the virtual clock. `compressed` has three isolated hosts on links of 100
Mbit/s, and needs what the tests' hosts need: root, sshd, iproute2 and iptables; so does the last line of `lost`, which
is how long the others take to name a rank that is stopped in the middle of a ring, killed, or on a host that is cut
off. Parts by name: `python bench/collectives.py native`. The exit status is 1 where a figure misses what is asked of
it; the last lines say which.
"""

from __future__ import annotations

import argparse
import json
import operator
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dtagent.payload.collectives import (
    AllReduceOperator,
    Compression,
    DistributedCommunicator,
    HalfPrecision,
    PowerSgd,
    TopK,
    batch_all_reduce,
)
from dtagent.payload.collectives.clock import NetworkLink, simulate
from dtagent.payload.collectives.schedules import even_cuts, ring_all_reduce

from tests.collectives.starting import python, started
from tests.lab.fixtures import missing_requirement
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.lab.interpreter import USER_PYTHON

RANKS = 4
SIZES_MIB = (1, 2, 4, 8, 16, 32, 64)
SMALL_BYTES = (8, 64, 512, 4096, 16384, 65536)
SMALL_CALLS = 20
"""Of what is small, so many are timed at once."""
SMALL_TENSORS, SMALL_ELEMENTS = 200, 1000
SIMULATED_RANKS = 1000
SLOW_HOSTS, SLOW_LINK, SLOW_ROWS, SLOW_COLUMNS = ("gpu1", "gpu2", "gpu3"), "100mbit", 2048, 1024
PORT = 29500
GLOO = "gloo's own"
OF_NATIVE, BATCHED_FASTER, SIMULATED_S, TOP_K_FASTER = 0.8, 3, 10, 5
LOST_RANKS, LOST_TIMEOUT_S, NOTICED_S = "tests.collectives.lost_ranks", 2.0, 1.0


class Row(NamedTuple):
    """A line of figures."""

    text: str
    is_missed: bool = False
    """Whether one of them is not what is asked of it."""


class Turns(NamedTuple):
    """What several pieces of work have taken, each in its turn."""

    seconds: dict[str, list[float]]
    """Of each piece, by turn, of the rank that took longest."""

    def median(self, name: str) -> float:
        """Return the seconds of a piece of work."""
        return statistics.median(self.seconds[name])

    def times(self, slower: str, faster: str) -> float:
        """Return how many times as long one takes as another, by turns."""
        return statistics.median(map(operator.truediv, self.seconds[slower], self.seconds[faster]))


def in_turns(works: dict[str, Callable[[], object]], rounds: int, calls: int = 1) -> Turns:
    """Return what each piece of work takes for one of several calls, without the first round."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _round in range(rounds + 1):
        for name, work in works.items():
            dist.barrier()
            began = time.perf_counter()
            for _call in range(calls):
                work()
            slowest = torch.tensor((time.perf_counter() - began) / calls, dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            taken[name].append(slowest.item())
    return Turns({name: seconds[1:] for name, seconds in taken.items()})


def native(comm: DistributedCommunicator, rounds: int) -> list[Row]:
    """Compare the ring with gloo's own all-reduce."""
    ring, rows = AllReduceOperator(comm, "ring"), []
    for size_mib in SIZES_MIB:
        tensor = torch.zeros(size_mib << 18)
        turns = in_turns(
            {
                GLOO: lambda tensor=tensor: dist.all_reduce(tensor),
                "ring": lambda tensor=tensor: ring.all_reduce(tensor, in_place=True),
            },
            rounds,
        )
        moved = 2 * (RANKS - 1) / RANKS * (size_mib << 20) / 1e9
        asked = f"   (at least {OF_NATIVE})" if size_mib >= 16 else ""
        told = ", ".join(
            f"{name} {turns.median(name) * 1e3:.1f} ms {moved / turns.median(name):.2f} GB/s" for name in turns.seconds
        )
        share = turns.times(GLOO, "ring")
        rows.append(
            Row(f"{size_mib:>3} MiB: {told}; ring by gloo's own {share:.2f}{asked}", bool(asked) and share < OF_NATIVE)
        )
    return rows


def small(comm: DistributedCommunicator, rounds: int) -> list[Row]:
    """Compare the usual all-reduce of what is small with gloo's own."""
    usual, rows = AllReduceOperator(comm), []
    for size in SMALL_BYTES:
        tensor = torch.zeros(size // 4)
        turns = in_turns(
            {
                GLOO: lambda tensor=tensor: dist.all_reduce(tensor),
                "ours": lambda tensor=tensor: usual.all_reduce(tensor, in_place=True),
            },
            rounds,
            SMALL_CALLS,
        )
        told = ", ".join(f"{name} {turns.median(name) * 1e6:.0f} µs" for name in turns.seconds)
        rows.append(Row(f"{size:>5} B: {told}; {turns.times('ours', GLOO):.1f} × gloo's own"))
    return rows


def batched(comm: DistributedCommunicator, rounds: int) -> list[Row]:
    """Compare many small tensors together with one by one."""
    usual = AllReduceOperator(comm)
    tensors = [torch.zeros(SMALL_ELEMENTS) for _ in range(SMALL_TENSORS)]
    turns = in_turns(
        {
            "together": lambda: batch_all_reduce(tensors, usual),
            "one by one": lambda: [usual.all_reduce(tensor) for tensor in tensors],
        },
        rounds,
    )
    told = ", ".join(f"{name} {turns.median(name) * 1e3:.1f} ms" for name in turns.seconds)
    faster = turns.times("one by one", "together")
    asked = f"   (at least {BATCHED_FASTER} ×)"
    text = f"{SMALL_TENSORS} tensors of {SMALL_ELEMENTS} float32: {told}; {faster:.1f} ×{asked}"
    return [Row(text, faster < BATCHED_FASTER)]


def compressed(comm: DistributedCommunicator, rounds: int) -> list[Row]:
    """Compare what goes over the wire as it is with what each compression sends, for a matrix of 8 MiB."""
    usual = AllReduceOperator(comm)
    tensor = torch.randn(SLOW_ROWS, SLOW_COLUMNS, generator=torch.Generator().manual_seed(comm.rank))
    ways: dict[str, Compression | None] = {
        "as it is": None,
        "bfloat16": HalfPrecision(),
        "top-k 1%": TopK(0.01),
        "PowerSGD of rank 2": PowerSgd(2),
    }
    turns = in_turns(
        {
            name: lambda way=way: usual.all_reduce(tensor, "mean", compression=way, name="gradient")
            for name, way in ways.items()
        },
        rounds,
    )
    rows = []
    for name in turns.seconds:
        asked = f"   (at least {TOP_K_FASTER} ×)" if name == "top-k 1%" else ""
        faster = turns.times("as it is", name)
        told = f"{name} {turns.median(name) * 1e3:.0f} ms, {faster:.1f} ×{asked}"
        is_missed = bool(asked) and faster < TOP_K_FASTER
        rows.append(Row(f"{comm.world_size} hosts, links of {SLOW_LINK}: {told}", is_missed))
    return rows


def simulated() -> list[Row]:
    """Time the virtual clock, by what it takes of the processor: it runs alone, and has nothing to take turns with."""
    cuts, began = even_cuts(1 << 18, SIMULATED_RANKS), time.process_time()
    schedules = [ring_all_reduce(rank, cuts) for rank in range(SIMULATED_RANKS)]
    told = simulate(schedules, 4, NetworkLink(20e-6, 1e9))
    taken = time.process_time() - began
    text = (
        f"ring of {SIMULATED_RANKS} ranks of 1 MiB, {sum(told.messages):,} messages: {taken:.1f} s"
        f"   (at most {SIMULATED_S} s); on its own clock {told.seconds * 1e3:.1f} ms"
    )
    return [Row(text, taken > SIMULATED_S)]


def lost(rounds: int) -> list[Row]:
    """Time how long the last of the others takes to name a rank that is lost in the middle of a ring."""
    rows = [_lost_here("stopped", "stop", LOST_TIMEOUT_S, rounds), _lost_here("killed", "kill", None, rounds)]
    if missing := missing_requirement():
        return [*rows, Row(f"a host cut off: not measured, as the hosts {missing}")]
    with Lab(SLOW_HOSTS, user_python=Path(sys.prefix)) as lab:
        taken = [_lost_on_hosts([lab[name] for name in SLOW_HOSTS], PORT + turn) for turn in range(min(rounds, 3))]
    return [*rows, _lost_row("whose host is cut off", taken, "its time-out")]


def _lost_here(what: str, how: str, timeout_s: float | None, rounds: int) -> Row:
    """Lose the third of five; one whose connections break is named at once, so that nothing of a time-out counts."""
    taken = []
    for _round in range(min(rounds, 5)):
        with tempfile.TemporaryDirectory() as directory:
            told = (f"{directory}/store", 2, how, 40.0 if timeout_s is None else timeout_s, "hurried")
            with started([python(LOST_RANKS, rank, 5, *told) for rank in range(5)]) as ranks:
                found = [rank.told() for rank in ranks if rank is not ranks[2]]
        assert all(item["missing"] == [2] for item in found), found
        taken.append(max(item["took"] for item in found) - (timeout_s or 0.0))
    return _lost_row(f"that is {what}", taken, "its end" if timeout_s is None else "its time-out")


def _lost_on_hosts(hosts: Sequence[Host], port: int) -> float:
    command = [
        [
            *("nsenter", "--target", str(host.pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--"),
            *("env", f"--chdir={Path(__file__).resolve().parents[1]}", "GLOO_SOCKET_IFNAME=eth0", USER_PYTHON),
            *map(str, ("-m", LOST_RANKS, rank, len(hosts), f"{hosts[0].address}:{port}", 0, "cut", LOST_TIMEOUT_S)),
            "hurried",
        ]
        for rank, host in enumerate(hosts)
    ]
    with started(command) as ranks:
        ranks[0].told()
        hosts[0].cut()
        ranks[0].go_on()
        found = [rank.told() for rank in ranks]
    hosts[0].heal()
    assert [item["missing"] for item in found] == [[1, 2], [0], [0]], found
    return float(max(item["took"] for item in found)) - LOST_TIMEOUT_S


def _lost_row(what: str, taken: Sequence[float], since: str) -> Row:
    median = statistics.median(taken)
    told = f"a rank {what}: the last of the others names it {median:.2f} s after {since} in the median"
    text = f"{told} of {len(taken)}, {max(taken):.2f} s in the worst   (at most {NOTICED_S:g} s)"
    return Row(text, median > NOTICED_S)


OVER_GLOO = {"small": small, "native": native, "batched": batched, "compressed": compressed}
ALONE = {"simulated": lambda _rounds: simulated(), "lost": lost}
PARTS = (*OVER_GLOO, *ALONE)


def be_rank(part: str, rank: int, ranks: int, rounds: int, meeting: str) -> None:
    """Take part in a comparison; the first rank prints it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks, timeout=timedelta(seconds=300))
    rows = OVER_GLOO[part](DistributedCommunicator(rank, ranks), rounds)
    if rank == 0:
        print(json.dumps(rows), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def arguments(part: str, rank: int, ranks: int, rounds: int, meeting: str) -> list[str]:
    """Return what a rank's process is started with, besides the interpreter."""
    script = str(Path(__file__).resolve())
    return [script, part, "--rounds", str(rounds), "--rank", str(rank), "--ranks", str(ranks), "--meeting", meeting]


def over_loopback(part: str, rounds: int) -> list[Row]:
    """Run a comparison in processes of its own."""
    with tempfile.TemporaryDirectory() as directory:
        meeting = f"file://{directory}/store"
        ranks = [
            subprocess.Popen(
                [sys.executable, *arguments(part, rank, RANKS, rounds, meeting)], stdout=subprocess.PIPE, text=True
            )
            for rank in range(RANKS)
        ]
        said = [process.communicate()[0] for process in ranks]
    return [Row(*told) for told in json.loads(said[0])]


def over_slow_links(part: str, rounds: int) -> list[Row]:
    """Run a comparison on isolated hosts, a rank on each."""
    if missing := missing_requirement():
        return [Row(f"{part}: not measured, as the hosts {missing}")]
    with Lab(SLOW_HOSTS, user_python=Path(sys.prefix)) as lab:
        hosts = [lab[name] for name in SLOW_HOSTS]
        meeting = f"tcp://{hosts[0].address}:{PORT}"

        def run(rank: int) -> Sequence[Row]:
            hosts[rank].limit(SLOW_LINK)
            started = ["env", "GLOO_SOCKET_IFNAME=eth0", USER_PYTHON]
            done = hosts[rank].run([*started, *arguments(part, rank, len(hosts), rounds, meeting)], timeout=600)
            return [Row(*told) for told in json.loads(done.stdout)] if rank == 0 else ()

        with ThreadPoolExecutor(len(hosts)) as pool:
            return list(next(iter(pool.map(run, range(len(hosts))))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="by default all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        be_rank(options.parts[0], options.rank, options.ranks, options.rounds, options.meeting)
        return
    missed = []
    for part in options.parts or PARTS:
        if part in ALONE:
            rows = ALONE[part](options.rounds)
        else:
            rows = (over_slow_links if part == "compressed" else over_loopback)(part, options.rounds)
        for row in rows:
            print(row.text, flush=True)
            if row.is_missed:
                missed.append(row.text)
    if missed:
        print("\nnot what is asked:", *missed, sep="\n", flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
