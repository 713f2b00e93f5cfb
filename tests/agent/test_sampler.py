"""The sampling threads and the long poll on top of them: with fakes that fail and hang, and once on the stub driver."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from dtagent.host import RankProcesses
from dtagent.protocol.telemetry import GpuSample, HostSample, TelemetryRequest
from dtagent.sampler import MOST_SAMPLES, Sampler

from tests.agent.nvml_stub import run_child

INTERVAL_S = 0.01


class FakeHost:
    """Answers at once, unless it is told to fail; can be held so that no sample comes before it is let go."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.go = threading.Event()
        self.go.set()
        self.processes: RankProcesses = {}

    def sample(self, seq: int, processes: RankProcesses, gpus: list[GpuSample]) -> HostSample:
        assert self.go.wait(20)
        self.processes = processes
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return HostSample(seq=seq, time=float(seq), gpus=gpus)


class FakeGpus:
    """One GPU whose driver can be made to hang or fail."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.go.set()
        self.failure: Exception | None = None

    def sample(self) -> list[GpuSample]:
        assert self.go.wait(20)
        if self.failure is not None:
            raise self.failure
        return [GpuSample(0, temperature_c=40)]


@contextmanager
def sampling(
    host: FakeHost,
    gpus: FakeGpus | None = None,
    ranks: Callable[[], RankProcesses] = lambda: {},
    interval_s: float = INTERVAL_S,
    ring_samples: int = 3600,
) -> Iterator[Sampler]:
    gpus = gpus or FakeGpus()
    sampler = Sampler(host, gpus, ranks, interval_s, ring_samples)
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
            for sample in (await sampler.follow(TelemetryRequest(after_seq=after))).samples:
                after = sample.seq
                if wanted(sample):
                    return sample

    return await asyncio.wait_for(look(), 20)


async def stopped_after(count: int, ring_samples: int = 3600) -> Sampler:
    """A sampler that has taken at least so many samples and takes no more."""
    with sampling(FakeHost(), interval_s=0.001, ring_samples=ring_samples) as sampler:
        await until(sampler, lambda sample: sample.seq >= count)
    return sampler


async def test_followers_get_every_sample_once_and_in_order() -> None:
    with sampling(FakeHost()) as sampler:
        seen: list[int] = []
        while len(seen) < 20:
            reply = await sampler.follow(TelemetryRequest(after_seq=seen[-1] if seen else 0))
            assert reply.missed == 0
            seen += [sample.seq for sample in reply.samples]
    assert seen == list(range(1, len(seen) + 1))


async def test_without_a_number_the_newest_alone_is_given() -> None:
    sampler = await stopped_after(10)
    reply = await sampler.follow(TelemetryRequest(after_seq=None))
    assert reply.samples == [sampler.latest()]
    assert reply.missed == 0


async def test_the_first_sample_is_waited_for() -> None:
    host = FakeHost()
    host.go.clear()
    with sampling(host) as sampler:
        assert sampler.latest() is None
        following = asyncio.create_task(sampler.follow(TelemetryRequest()))
        assert (await sampler.follow(TelemetryRequest(wait_s=0))).samples == []
        host.go.set()
        assert (await asyncio.wait_for(following, 20)).samples[0].seq == 1


async def test_nothing_new_within_the_wait_is_an_empty_reply() -> None:
    host = FakeHost()
    with sampling(host) as sampler:
        last = await until(sampler, lambda sample: sample.seq >= 2)
        host.go.clear()
        # The step under way may still add one or two.
        newest = last.seq
        while samples := (await sampler.follow(TelemetryRequest(after_seq=newest, wait_s=0.2))).samples:
            newest = samples[-1].seq
        reply = await sampler.follow(TelemetryRequest(after_seq=newest, wait_s=0.05))
    assert (reply.samples, reply.missed) == ([], 0)


async def test_many_followers_are_woken_by_one_sample() -> None:
    host = FakeHost()
    host.go.clear()
    with sampling(host) as sampler:
        following = [asyncio.create_task(sampler.follow(TelemetryRequest(after_seq=0))) for _ in range(50)]
        await asyncio.sleep(0)
        host.go.set()
        replies = await asyncio.wait_for(asyncio.gather(*following), 20)
    assert all(reply.samples[0].seq == 1 for reply in replies)


async def test_samples_that_have_left_the_ring_are_counted_as_missed() -> None:
    sampler = await stopped_after(20, ring_samples=5)
    newest = sampler.latest()
    assert newest is not None
    kept = [newest.seq - 4 + index for index in range(5)]

    async def ask(after: int, most: int = 60) -> tuple[list[int], int]:
        reply = await sampler.follow(TelemetryRequest(after_seq=after, wait_s=0, max_samples=most))
        return [sample.seq for sample in reply.samples], reply.missed

    assert await ask(0) == (kept, kept[0] - 1)
    assert await ask(kept[0] - 3) == (kept, 2)
    assert await ask(kept[0] - 1) == (kept, 0)
    assert await ask(kept[1]) == (kept[2:], 0)
    assert await ask(kept[-1]) == ([], 0)
    assert await ask(0, most=2) == (kept[:2], kept[0] - 1)
    assert await ask(kept[1], most=2) == (kept[2:4], 0)
    assert await ask(0, most=-1) == (kept[:1], kept[0] - 1)


async def test_a_reply_is_bounded_whatever_is_asked_for() -> None:
    sampler = await stopped_after(MOST_SAMPLES + 20)
    reply = await sampler.follow(TelemetryRequest(after_seq=0, max_samples=10**9))
    assert [sample.seq for sample in reply.samples] == list(range(1, MOST_SAMPLES + 1))


async def test_a_number_of_a_daemon_before_this_one_brings_everything() -> None:
    sampler = await stopped_after(5)
    newest = sampler.latest()
    assert newest is not None
    reply = await sampler.follow(TelemetryRequest(after_seq=90_000))
    assert [sample.seq for sample in reply.samples] == list(range(1, newest.seq + 1))
    assert reply.missed == 0


async def test_stopping_answers_those_who_wait() -> None:
    host = FakeHost()
    host.go.clear()
    with sampling(host) as sampler:
        following = asyncio.create_task(sampler.follow(TelemetryRequest(after_seq=5, wait_s=60)))
        await asyncio.sleep(0)
        host.go.set()
        sampler.stop()
        await asyncio.wait_for(following, 20)
        last = sampler.latest()
        assert last is not None
        reply = await asyncio.wait_for(sampler.follow(TelemetryRequest(after_seq=last.seq, wait_s=60)), 20)
    assert reply.samples == []


def test_a_follower_whose_loop_is_gone_does_not_stop_the_sampling() -> None:
    host = FakeHost()
    host.go.clear()
    with sampling(host) as sampler:

        async def give_up() -> None:
            task = asyncio.create_task(sampler.follow(TelemetryRequest(wait_s=60)))
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
    running: dict[str, dict[int, int]] = {}
    with sampling(host, ranks=lambda: running) as sampler:
        await until(sampler, lambda sample: True)
        running["job"] = {0: 4711}
        await until(sampler, lambda sample: bool(host.processes))
    assert host.processes == {"job": {0: 4711}}


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
        await until(sampler, lambda sample: sample.gpus[0].error is not None)
        gpus.failure = None
        await until(sampler, lambda sample: sample.gpus[0].error is None)
    assert caplog.text.count("reading the GPUs failed") == 1


def test_stopping_does_not_wait_for_a_driver_that_hangs() -> None:
    gpus = FakeGpus()
    gpus.go.clear()
    sampler = Sampler(FakeHost(), gpus, lambda: {}, INTERVAL_S)
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
