"""The sampling threads and the long poll on top of them: with fakes that fail and hang, and once on the stub driver."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from dtagent.protocol.telemetry import GpuSample, HostSample, TelemetryRequest, TelemetrySelection
from dtagent.telemetry.rank_use import RankProcess, RankProcesses
from dtagent.telemetry.sampler import MOST_SAMPLES, Sampler

from tests.agent.nvml_stub import run_child
from tests.agent.sampling import follow

INTERVAL_S = 0.01


class FakeHost:
    """Answers at once, unless it is told to fail; can be held so that no sample comes before it is let go.

    Args:
        most: how many samples it gives before it fails for good.
    """

    def __init__(self, most: float = math.inf) -> None:
        self._most = most
        self.failure: Exception | None = None
        self.go = threading.Event()
        self.go.set()
        self.is_held = threading.Event()
        """Set once a sample has been asked for that has to wait: all that came before are there."""
        self.processes: RankProcesses = {}

    def sample(
        self, seq: int, processes: RankProcesses, gpus: list[GpuSample], *, with_cores: bool = False
    ) -> HostSample:
        if not self.go.is_set():
            self.is_held.set()
        assert self.go.wait(20)
        self.processes = processes
        if seq > self._most:
            raise RuntimeError("enough of them")
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return HostSample(seq=seq, time=float(seq), gpus=gpus, core_percents=[1] if with_cores else None)


class FakeGpus:
    """GPUs whose driver can be made to hang at some of them, or fail."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self.go = threading.Event()
        self.go.set()
        self.hanging = range(count)
        """Which of them wait for `go`."""
        self.failure: Exception | None = None
        self.has_failed = threading.Event()

    def refresh(self) -> int:
        return self.count

    def read(self, index: int) -> GpuSample:
        assert index not in self.hanging or self.go.wait(20)
        if self.failure is not None:
            self.has_failed.set()
            raise self.failure
        return GpuSample(index, temperature_c=40)

    def asking(self, index: int) -> str:
        return f"nvmlOfGpu{index}"


@contextmanager
def sampling(
    host: FakeHost,
    gpus: FakeGpus | None = None,
    ranks: Callable[[], RankProcesses] = lambda: {},
    interval_s: float = INTERVAL_S,
    ring_samples: int = 3600,
) -> Iterator[Sampler]:
    gpus = gpus or FakeGpus()
    sampler = Sampler(lambda: host, gpus, ranks, interval_s, ring_samples)
    sampler.start()
    try:
        yield sampler
    finally:
        host.go.set()
        gpus.go.set()
        sampler.stop()


async def until(sampler: Sampler, wanted: Callable[[HostSample], bool]) -> HostSample:
    """Follow until a sample is as wanted."""

    async def look() -> HostSample:
        after: int | None = None
        while True:
            for sample in (await follow(sampler, TelemetryRequest(after_seq=after))).samples:
                after = sample.seq
                if wanted(sample):
                    return sample

    return await asyncio.wait_for(look(), 20)


async def stopped_after(count: int, ring_samples: int = 3600) -> Sampler:
    """A sampler that has taken so many samples and takes no more."""
    with sampling(FakeHost(most=count), interval_s=0.001, ring_samples=ring_samples) as sampler:
        await until(sampler, lambda sample: sample.seq == count)
    return sampler


async def test_followers_get_every_sample_once_and_in_order() -> None:
    with sampling(FakeHost()) as sampler:
        seen: list[int] = []
        while len(seen) < 20:
            reply = await follow(sampler, TelemetryRequest(after_seq=seen[-1] if seen else 0))
            assert reply.missed == 0
            seen += [sample.seq for sample in reply.samples]
    assert seen == list(range(1, len(seen) + 1))


async def test_without_a_number_the_newest_alone_is_given() -> None:
    sampler = await stopped_after(10)
    reply = await follow(sampler, TelemetryRequest(after_seq=None))
    newest = sampler.latest()
    assert newest is not None
    assert [sample.seq for sample in reply.samples] == [newest.seq]
    assert reply.missed == 0


async def test_the_first_sample_is_waited_for() -> None:
    host = FakeHost()
    host.go.clear()
    # So long an interval that the first is still the newest when it is read, however busy the machine.
    with sampling(host, interval_s=60) as sampler:
        assert sampler.latest() is None
        following = asyncio.create_task(follow(sampler, TelemetryRequest()))
        assert (await follow(sampler, TelemetryRequest(wait_s=0))).samples == []
        host.go.set()
        assert (await asyncio.wait_for(following, 20)).samples[0].seq == 1


async def test_nothing_new_within_the_wait_is_an_empty_reply() -> None:
    host = FakeHost()
    with sampling(host) as sampler:
        await until(sampler, lambda sample: sample.seq >= 2)
        host.go.clear()
        assert await asyncio.to_thread(host.is_held.wait, 20)
        newest = sampler.latest()
        assert newest is not None
        reply = await follow(sampler, TelemetryRequest(after_seq=newest.seq, wait_s=0.05))
    assert (reply.samples, reply.missed) == ([], 0)


async def test_many_followers_are_woken_by_one_sample() -> None:
    host = FakeHost()
    host.go.clear()
    with sampling(host) as sampler:
        following = [asyncio.create_task(follow(sampler, TelemetryRequest(after_seq=0))) for _ in range(50)]
        await asyncio.sleep(0)
        host.go.set()
        replies = await asyncio.wait_for(asyncio.gather(*following), 20)
    assert all(reply.samples[0].seq == 1 for reply in replies)


async def test_samples_that_have_left_the_ring_are_counted_as_missed_and_every_thirtieth_is_left() -> None:
    sampler = await stopped_after(300, ring_samples=60)
    newest = sampler.latest()
    assert newest is not None

    async def ask(after: int, most: int = 300) -> tuple[list[int], int]:
        reply = await follow(sampler, TelemetryRequest(after_seq=after, wait_s=0, max_samples=most))
        return [sample.seq for sample in reply.samples], reply.missed

    kept, missed = await ask(0)
    assert kept[:3] == [30, 60, 90]
    assert kept[-60:] == list(range(newest.seq - 59, newest.seq + 1))
    assert missed == newest.seq - len(kept)
    assert await ask(0, most=2) == ([30, 60], 58)
    assert await ask(30, most=2) == ([60, 90], 58)
    assert await ask(45, most=1) == ([60], 14)
    assert await ask(newest.seq - 3) == ([newest.seq - 2, newest.seq - 1, newest.seq], 0)
    assert await ask(newest.seq) == ([], 0)
    assert await ask(0, most=-1) == ([30], 29)


async def test_a_client_gets_the_rate_it_asks_for_and_has_missed_nothing_then() -> None:
    sampler = await stopped_after(100)
    request = TelemetryRequest(after_seq=0, wait_s=0, max_samples=4, interval_s=0.02)
    reply = await follow(sampler, request)  # The sampler's own interval is 0.001 s.
    assert [sample.seq for sample in reply.samples] == [20, 40, 60, 80]
    assert reply.missed == 0


async def test_a_client_waits_for_the_sample_that_is_due_at_its_rate() -> None:
    with sampling(FakeHost()) as sampler:
        first = (await follow(sampler, TelemetryRequest())).samples[0]
        reply = await follow(sampler, TelemetryRequest(after_seq=first.seq, interval_s=5 * INTERVAL_S))
    seqs = [sample.seq for sample in reply.samples]  # More than one where this process was held up.
    assert seqs
    assert seqs == [first.seq + 5 * number for number in range(1, len(seqs) + 1)]


async def test_a_client_gets_the_fields_it_asks_for_in_its_order_and_none_for_those_unknown() -> None:
    with sampling(FakeHost()) as sampler:
        whole = await until(sampler, lambda sample: [gpu.temperature_c for gpu in sample.gpus] == [40])
    select = TelemetrySelection(["load1", "moon_phase"], ["temperature_c", "index", "colour"], ["rank"])
    reply = await follow(sampler, TelemetryRequest(after_seq=whole.seq - 1, wait_s=0, max_samples=1, select=select))
    assert reply.samples == []
    assert reply.rows == [[whole.seq, whole.time, [None, None], [[40], [0], None], {}]]


async def test_each_cpu_is_read_once_somebody_asks_for_it_by_name() -> None:
    select = TelemetrySelection(["core_percents"])
    with sampling(FakeHost()) as sampler:
        before = (await follow(sampler, TelemetryRequest())).samples[0]
        assert before.core_percents is None
        await follow(sampler, TelemetryRequest(select=select))
        after = await until(sampler, lambda sample: sample.core_percents is not None)
    assert after.core_percents == [1]


async def test_a_client_that_left_another_daemon_gets_all_of_this_one() -> None:
    sampler = Sampler(FakeHost, FakeGpus(), lambda: {}, INTERVAL_S, first_seq=5000)
    sampler.start()
    try:
        reply = await asyncio.wait_for(follow(sampler, TelemetryRequest(after_seq=4990)), 20)
    finally:
        sampler.stop()
    assert reply.samples[0].seq == 5000
    assert reply.missed == 0


async def test_a_reply_is_bounded_whatever_is_asked_for() -> None:
    sampler = await stopped_after(MOST_SAMPLES + 20)
    reply = await follow(sampler, TelemetryRequest(after_seq=0, max_samples=10**9))
    assert [sample.seq for sample in reply.samples] == list(range(1, MOST_SAMPLES + 1))


async def test_a_number_of_a_daemon_before_this_one_brings_everything() -> None:
    sampler = await stopped_after(5)
    newest = sampler.latest()
    assert newest is not None
    reply = await follow(sampler, TelemetryRequest(after_seq=90_000))
    assert [sample.seq for sample in reply.samples] == list(range(1, newest.seq + 1))
    assert reply.missed == 0


async def test_stopping_answers_those_who_wait() -> None:
    host = FakeHost()
    host.go.clear()
    with sampling(host) as sampler:
        assert await asyncio.to_thread(host.is_held.wait, 20)  # Else the thread may end before its first sample.
        request = TelemetryRequest(after_seq=0, interval_s=60, wait_s=60)  # Its sample is thousands away.
        following = asyncio.create_task(follow(sampler, request))
        await asyncio.sleep(0)
        host.go.set()
        await until(sampler, lambda sample: sample.seq >= 1)
        sampler.stop()
        await asyncio.wait_for(following, 20)
        last = sampler.latest()
        assert last is not None
        reply = await asyncio.wait_for(follow(sampler, TelemetryRequest(after_seq=last.seq, wait_s=60)), 20)
    assert reply.samples == []


def test_a_follower_whose_loop_is_gone_does_not_stop_the_sampling() -> None:
    host = FakeHost()
    host.go.clear()
    with sampling(host) as sampler:

        async def give_up() -> None:
            task = asyncio.create_task(follow(sampler, TelemetryRequest(wait_s=60)))
            await asyncio.sleep(0)
            task.cancel()

        asyncio.run(give_up())
        host.go.set()
        sample = asyncio.run(until(sampler, lambda sample: sample.seq >= 3))
    assert sample.seq >= 3


async def test_a_step_that_raises_is_logged_and_the_next_one_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    host = FakeHost()
    with sampling(host) as sampler, caplog.at_level(logging.ERROR):
        before = await until(sampler, lambda sample: sample.seq >= 2)
        host.failure = RuntimeError("the disk is on fire")
        after = await until(sampler, lambda sample: sample.seq >= before.seq + 3 and host.failure is None)
    assert after.seq > before.seq
    assert "the disk is on fire" in caplog.text


async def test_ranks_that_cannot_be_told_do_not_stop_the_sampling(caplog: pytest.LogCaptureFixture) -> None:
    def ranks() -> RankProcesses:
        raise KeyError("no journal")

    with sampling(FakeHost(), ranks=ranks) as sampler:
        await until(sampler, lambda sample: sample.seq >= 5)
    assert caplog.text.count("sampling failed") == 1


async def test_the_probe_is_told_the_ranks_of_this_moment() -> None:
    host = FakeHost()
    running: dict[str, dict[int, RankProcess]] = {}
    with sampling(host, ranks=lambda: running) as sampler:
        await until(sampler, lambda sample: True)
        running["job"] = {0: RankProcess(4711)}
        await until(sampler, lambda sample: bool(host.processes))
    assert host.processes == {"job": {0: RankProcess(4711)}}


async def test_a_gpu_call_that_hangs_does_not_stop_the_host_and_is_said() -> None:
    gpus = FakeGpus()
    with sampling(FakeHost(), gpus, interval_s=0.02) as sampler:
        healthy = await until(sampler, lambda sample: bool(sample.gpus) and sample.gpus[0].error is None)
        assert healthy.gpus == [GpuSample(0, temperature_c=40)]
        gpus.go.clear()
        silent = await until(sampler, lambda sample: sample.gpus[0].error is not None)
        assert silent.gpus[0].index == 0
        assert silent.gpus[0].temperature_c is None
        assert (silent.gpus[0].error or "").startswith("the driver has not answered for ")
        await until(sampler, lambda sample: sample.seq >= silent.seq + 5)
        gpus.go.set()
        again = await until(sampler, lambda sample: sample.gpus[0].error is None)
    assert again.gpus == [GpuSample(0, temperature_c=40)]


async def test_a_gpu_reading_that_raises_shows_as_silence(caplog: pytest.LogCaptureFixture) -> None:
    gpus = FakeGpus()
    with sampling(FakeHost(), gpus, interval_s=0.02) as sampler:
        await until(sampler, lambda sample: bool(sample.gpus))
        gpus.failure = TypeError("a driver from the future")
        assert await asyncio.to_thread(gpus.has_failed.wait, 20)  # On a busy machine it may be silent before.
        await until(sampler, lambda sample: sample.gpus[0].error is not None)
        gpus.failure = None
        await until(sampler, lambda sample: sample.gpus[0].error is None)
    assert caplog.text.count("reading the GPUs failed") == 1


async def test_one_gpu_that_hangs_is_named_and_the_others_go_on() -> None:
    gpus = FakeGpus(4)
    before = set(threading.enumerate())
    with sampling(FakeHost(), gpus, interval_s=0.02) as sampler:
        await until(sampler, lambda sample: len(sample.gpus) == 4 and not any(gpu.error for gpu in sample.gpus))
        gpus.hanging = range(1, 3)
        gpus.go.clear()
        silent = await until(sampler, lambda sample: bool(sample.gpus[1].error and sample.gpus[2].error))
        # Where this process is held up for long, the others are silent too for a moment.
        told = [False, True, True, False]
        later = await until(
            sampler, lambda sample: sample.seq > silent.seq + 10 and [bool(gpu.error) for gpu in sample.gpus] == told
        )
        threads = sum(thread.name == "gpu-sampler" for thread in set(threading.enumerate()) - before)
        gpus.go.set()
        await until(sampler, lambda sample: not any(gpu.error for gpu in sample.gpus))
    assert (silent.gpus[2].error or "").endswith(": nvmlOfGpu2 hangs")
    assert [gpu.temperature_c for gpu in later.gpus] == [40, None, None, 40]
    assert threads <= 3


def test_stopping_does_not_wait_for_a_driver_that_hangs() -> None:
    gpus = FakeGpus()
    gpus.go.clear()
    sampler = Sampler(FakeHost, gpus, lambda: {}, INTERVAL_S)
    sampler.start()
    sampler.stop()
    gpus.go.set()


def test_nvml_that_hangs_is_outlived_and_taken_back(nvml_stub: Callable[..., dict[str, str]]) -> None:
    before, during, later, after = run_child(nvml_stub(gpus=2), "sampling_through_a_hang")
    assert [gpu["utilization_percent"] for gpu in before["gpus"]] == [0, 0]
    assert [gpu["index"] for gpu in during["gpus"]] == [0, 1]
    assert all(gpu["error"].startswith("the driver has not answered for ") for gpu in during["gpus"])
    assert later["seq"] >= during["seq"] + 5
    assert later["load1"] >= 0
    assert [gpu["utilization_percent"] for gpu in after["gpus"]] == [0, 0]
    assert before["seq"] < during["seq"] < later["seq"] < after["seq"]
