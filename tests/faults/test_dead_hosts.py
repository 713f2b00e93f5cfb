"""Many hosts of which few live: the others refuse, drop what is sent, say nothing, or have no name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dttui.cli import environments as cli_environments
from dttui.errors import HostError
from dttui.fleet import live
from dttui.fleet.deployment.each_host import Visit, on_each
from dttui.fleet.live import Fleet
from dttui.fleet.states import EnvironmentState
from dttui.inventory.models import Environment
from dttui.transport.base import CONNECT_TIMEOUT_S
from dttui.transport.ssh import sockets, transport
from dttui.transport.ssh.ssh_config import SshTarget
from dttui.transport.ssh.transport import SshTransport
from tests.integration.headless import dttui_here, start_dttui
from tests.integration.ssh_fixtures import NOBODY
from tests.integration.sshd import USER, Sshd, free_port

pytestmark = pytest.mark.sshd

DEADLINE_S = 60.0
LIVE, OTHERS = 12, 240
"""Enough to fill every place that these tests leave."""


@pytest.fixture(autouse=True)
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were ten times as many hosts."""
    monkeypatch.setattr(transport, "MOST_DIALS", 40)
    monkeypatch.setattr(transport, "LOGINS_AT_ONCE", 6)
    monkeypatch.setattr(transport, "LOOK_UPS_AT_ONCE", 6)


@contextlib.contextmanager
def listening(*, drops: bool) -> Iterator[int]:
    """Yield a port where, on every address of this machine, connections are dropped, or taken without a word."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("0.0.0.0", 0))
        server.listen(0 if drops else 4096)
        port = int(server.getsockname()[1])
        for _each in range(3 if drops else 0):  # The queue is full then, and the kernel drops what comes.
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        yield port


def far(name: str, number: int, port: int) -> Environment:
    address = f"127.77.{number // 250}.{number % 250 + 1}"
    return Environment.model_validate({"name": f"{name}{number}", "host": address, "port": port, "user": USER})


def mixed(live: Sequence[Environment], others: Sequence[Environment]) -> list[Environment]:
    """All of them, the live ones spread among the others and one of them last."""
    step = len(others) // len(live)
    found: list[Environment] = []
    for index, environment in enumerate(live):
        found += [*others[index * step : (index + 1) * step], environment]
    return [*others[len(live) * step :], *found]


async def order_of_settling(environments: Sequence[Environment], transport: SshTransport) -> list[str]:
    """Watch a fleet until the live ones have been found; return who was settled until then, in order."""
    fleet = Fleet(environments, transport, NOBODY)
    wanted = {item.name for item in environments if item.name.startswith("live")}
    settled: list[str] = []
    fleet.start()
    deadline = time.monotonic() + DEADLINE_S
    while not wanted <= set(settled):
        assert time.monotonic() < deadline, f"{len(wanted & set(settled))} of {len(wanted)} live hosts were found"
        new = {name for name, status in fleet.statuses.items() if status.state is not EnvironmentState.CONNECTING}
        settled += sorted(new - set(settled))
        await asyncio.sleep(0.02)
    assert {fleet.statuses[name].state for name in wanted} == {EnvironmentState.NO_AGENT}
    await fleet.close()
    return settled


@pytest.mark.parametrize("kind", ["drop", "silent", "nameless"])
async def test_live_hosts_are_found_before_any_that_never_answers_is_given_up(
    kind: str, sshd: Sshd, transport: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the time that a host has to answer, two minutes here for a machine under load; nothing is left."""
    monkeypatch.setattr(live, "CONNECT_TIMEOUT_S", 2 * DEADLINE_S)
    hangs = threading.Event()
    look_up = sockets.look_up

    def look_up_for_long(target: SshTarget) -> list[sockets.Address]:
        if target.hostname.startswith("nowhere"):
            hangs.wait(DEADLINE_S)
            raise OSError("the test is over")
        return look_up(target)

    monkeypatch.setattr(sockets, "look_up", look_up_for_long)
    living = [
        sshd.environment(f"live{number}", host="localhost" if number % 2 else "127.0.0.1") for number in range(LIVE)
    ]
    known = sshd.known_hosts.read_text()
    sshd.known_hosts.write_text(known + known.replace("127.0.0.1", "localhost"))
    with listening(drops=kind == "drop") as port:
        refusing = [far("refuse", number, free_port()) for number in range(OTHERS)]
        dead = [far(kind, number, port) for number in range(OTHERS)]
        if kind == "nameless":
            dead = [item.model_copy(update={"host": f"nowhere{index}"}) for index, item in enumerate(dead)]
        others = [item for pair in zip(refusing, dead, strict=True) for item in pair]
        try:
            settled = await order_of_settling(mixed(living, others), transport)
        finally:
            hangs.set()
    assert not [name for name in settled if name.startswith(kind)]
    assert any(name.startswith("refuse") for name in settled)


async def test_what_is_done_on_live_hosts_does_not_wait_for_dead_ones(sshd: Sshd, transport: SshTransport) -> None:
    """Before the 20 s that a host has to answer; nothing is left."""
    done: list[str] = []
    everywhere = asyncio.Event()

    async def act(visit: Visit) -> str:
        done.append(visit.host)
        if len(done) == LIVE:
            everywhere.set()
        return visit.host

    with listening(drops=True) as port:
        living = [sshd.environment(f"live{number}") for number in range(LIVE)]
        dead = [far("drop", number, port) for number in range(OTHERS // 2)]
        work: asyncio.Task[list[str | HostError]] = asyncio.create_task(
            on_each(mixed(living, dead), transport, NOBODY, act, concurrency=4)
        )
        waiting = asyncio.create_task(everywhere.wait())
        finished, _pending = await asyncio.wait(
            {work, waiting}, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED
        )
        assert finished == {waiting}
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    assert sorted(done) == sorted(item.name for item in living)


def test_what_is_not_settled_at_the_end_is_told_so_and_not_as_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `SETTLE_S`; nothing is left."""
    monkeypatch.setattr(cli_environments, "SETTLE_S", 8.0)
    inventory = tmp_path / "inventory.yaml"
    with listening(drops=True) as port:
        environments = [far("drop", 1, port), far("refuse", 2, free_port()), far("drop", 3, port)]
        inventory.write_text(
            json.dumps({"environments": [item.model_dump(exclude_unset=True) for item in environments]})
        )
        done = dttui_here("envs", "--inventory", inventory, "--output", "jsonl")
        shown = dttui_here("envs", "--inventory", inventory)
    rows = {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 4
    assert rows["refuse2"]["state"] == "unreachable"
    assert rows["drop1"]["state"] == "connecting"
    assert rows["drop1"]["reason"] == "not settled: it has neither answered nor refused within 8 s"
    assert shown.stderr.count("Ask about it alone") == 1


@pytest.mark.parametrize(("verb", "language"), [(["envs"], "en"), (["agents", "status"], "en"), (["envs"], "zh")])
def test_who_is_waited_for_and_until_when_is_said_after_a_moment(
    tmp_path: Path, verb: list[str], language: str
) -> None:
    """While the live ones are known long since; nothing is left."""
    inventory = tmp_path / "inventory.yaml"
    with listening(drops=True) as port:
        environments = [far("drop", 1, port), far("refuse", 2, free_port()), far("drop", 3, port)]
        inventory.write_text(
            json.dumps({"environments": [item.model_dump(exclude_unset=True) for item in environments]})
        )
        began = time.time()
        running = start_dttui(*verb, "--inventory", inventory, "--lang", language)
        assert running.stderr is not None
        said = running.stderr.readline()
        took_s = time.time() - began
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=DEADLINE_S)
    waiting = {"en": "waiting for drop1, drop3, until ", "zh": "正在等待 drop1、drop3，最迟到 "}
    assert said.startswith(waiting[language])
    assert took_s < CONNECT_TIMEOUT_S


def test_who_reads_data_is_told_nothing_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `SETTLE_S`; nothing is left."""
    monkeypatch.setattr(cli_environments, "SETTLE_S", 3.0)
    inventory = tmp_path / "inventory.yaml"
    with listening(drops=True) as port:
        environments = [far("drop", 1, port)]
        inventory.write_text(
            json.dumps({"environments": [item.model_dump(exclude_unset=True) for item in environments]})
        )
        done = dttui_here("envs", "--inventory", inventory, "--output", "json")
        monkeypatch.setattr(cli_environments, "SETTLE_S", 10.0)
        shown = dttui_here("envs", "--inventory", inventory)
    assert (len(json.loads(done.stdout)), done.stderr) == (1, "")
    assert shown.stderr.startswith("waiting for drop1, until ")
    assert "waiting" not in shown.stdout


def test_what_many_hosts_have_made_is_not_looked_through_for_garbage_again_and_again(tmp_path: Path) -> None:
    """All at once: neither a key is answered nor a host found meanwhile; nothing is left."""
    port = free_port()
    inventory = tmp_path / "inventory.yaml"
    hosts_of_it = [far("refuse", number, port).model_dump(exclude_unset=True) for number in range(1500)]
    inventory.write_text(json.dumps({"environments": hosts_of_it}))
    counted = (
        "import gc, sys; from dttui.cli import main; looks = []\n"
        "gc.callbacks.append(lambda phase, info: looks.append(phase) if info['generation'] == 2 else None)\n"
        f"code = main(['envs', '--inventory', {str(inventory)!r}, '--output', 'jsonl'])\n"
        "sys.stderr.write(f'{code} {looks.count(\"start\")} full looks'); sys.stderr.flush()"
    )
    done = subprocess.run([sys.executable, "-c", counted], capture_output=True, text=True, timeout=DEADLINE_S)
    code, looks = done.stderr.split()[-4:-2]
    assert len(done.stdout.splitlines()) == 1500
    assert (int(code), int(looks) <= 1) == (4, True)
