"""A bench on isolated hosts of which one, or one link, is slow: it is named, measured, and counted on afterwards."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Button

from dttui.app import BenchReport
from dttui.compose import bench_words
from dttui.fleet.known_hardware import measured_links
from dttui.inventory.reader import load_inventory
from dttui.planning.cost.links import newest, slowest_link
from dttui.spec.models import Cluster, Job, Node, Run
from dttui.tui.app import DttuiApp, TuiOptions
from dttui.tui.screens.checks import ChecksScreen
from dttui.tui.screens.compose import ComposeScreen
from dttui.tui.screens.dialogs import ChoiceDialog
from tests.integration.headless import dttui, dttui_here
from tests.lab.host import Host
from tests.lab.hosts import Lab
from tests.tui.looking import text_of, until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300), pytest.mark.xdist_group("lab of watches")]
NAMES = ("gpu1", "gpu2", "gpu3")
PING_PONG = """
import socket, statistics, sys, time
is_server, address = sys.argv[1] == "server", (sys.argv[2], 29900)
if is_server:
    with socket.create_server(address) as listener:
        stream = listener.accept()[0]
else:
    for _attempt in range(200):
        try:
            stream = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
taken = []
for _trip in range(500):
    began = time.perf_counter()
    if is_server:
        stream.sendall(stream.recv(8))
    else:
        stream.sendall(bytes(8))
        stream.recv(8)
    taken.append(time.perf_counter() - began)
print(statistics.median(taken) / 2)
"""
PLAIN = 4
"""Plain ping-pongs before and after a measurement that is compared with them."""
TEN_MBIT = 1.25e6
"""Bytes a second."""


def ping_pong(here: Host, there: Host) -> float:
    """Return the seconds that 8 bytes take one way between two hosts over a plain TCP connection."""
    with ThreadPoolExecutor(2) as pool:
        both = [
            pool.submit(host.run, ["/usr/bin/env", "python3", "-c", PING_PONG, role, there.address])
            for host, role in ((there, "server"), (here, "client"))
        ]
        return float(both[1].result().stdout)


def test_a_slow_link_is_named_with_its_bandwidth_and_plans_count_on_it(deployed: Lab, tmp_path: Path) -> None:
    """A host behind 10 Mbit/s: within 240 s it is named, its links are within 10% of that, the others beyond."""
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    deployed["gpu3"].limit("10mbit")
    pairs = (("gpu1", "gpu2"), ("gpu1", "gpu3"))
    try:
        plain = {(a, b): [ping_pong(deployed[a], deployed[b]) for _time in range(PLAIN)] for a, b in pairs}
        done = dttui(
            *(
                "bench",
                "--inventory",
                inventory,
                "--envs",
                ",".join(NAMES),
                "--max",
                "1MiB",
                "--yes",
                "--output",
                "json",
            ),
            deadline_s=240,
        )
        for a, b in pairs:
            plain[a, b] += [ping_pong(deployed[a], deployed[b]) for _time in range(PLAIN)]
    finally:
        deployed["gpu3"].unlimit()
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    slow = [place["names"] for place in told["slow"] if place["what"] == "bandwidth"]
    assert slow == [["gpu3"]], told["links"]
    named = {finding["subject"]: finding for finding in told["findings"] if finding["code"] == "host-slow"}
    assert list(named) == ["gpu3"]
    bandwidths = {tuple(link["between"]): link["bandwidth"] for link in told["links"]}
    assert bandwidths["gpu1", "gpu3"] == pytest.approx(TEN_MBIT, rel=0.1)
    assert bandwidths["gpu2", "gpu3"] == pytest.approx(TEN_MBIT, rel=0.1)
    assert bandwidths["gpu1", "gpu2"] > 10 * TEN_MBIT
    latencies = {tuple(link["between"]): link["tcp_latency_s"] for link in told["links"]}
    for pair, taken in plain.items():
        # Either is 10 µs or 30 from one run to the next; a message by gloo takes 70 or more.
        assert any(one / 4 < latencies[pair] < 4 * one for one in taken), (plain, latencies)
    assert {row["wrong"] for row in told["rows"]} == {0}
    known = slowest_link([(name, None) for name in NAMES], newest(measured_links()))
    assert known is not None
    assert known.source == "measured"
    assert "gpu3" in known.between
    assert known.bandwidth == pytest.approx(TEN_MBIT, rel=0.1)


JOB = """
distributed_training:
  name: gpt
  framework: pytorch-ddp
  run: {script: /opt/train.py}
  dataset: none
  model: {parameters: 7e9}
  cluster:
    nodes: [{id: gpu1, role: master}, {id: gpu2}, {id: gpu3}]
"""
LARGEST = 256 << 10
"""Bytes of a message: a fifth of a second over the slow link."""


async def measured_from_the_screen(inventory_file: Path) -> tuple[BenchReport, list[str], str]:
    """Measure by the button of the board; return the report, what it found, and what the job's screen warns of then."""
    inventory = load_inventory(inventory_file)
    draft = Job(
        name="gpt",
        framework="pytorch-ddp",
        run=Run(script="/opt/train.py"),
        dataset="none",
        cluster=Cluster(nodes=tuple(Node(id=name) for name in NAMES)),
    )
    app = DttuiApp(TuiOptions(inventory, inventory_file, draft=draft))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ComposeScreen), "the job is on screen", 60)
        await until(pilot, lambda: "taken by default" in text_of(app, "#findings-text"), "the link is assumed", 60)
        await pilot.press("c")
        await until(pilot, lambda: isinstance(app.screen, ChecksScreen), "the board is on screen", 60)
        await until(pilot, lambda: bool(app.screen.query("#bench")), "its button is there", 60)
        app.screen.query_one("#bench", Button).press()
        await until(pilot, lambda: isinstance(app.screen, ChoiceDialog), "it is asked first", 60)
        await pilot.press("right", "enter")
        watch = await until(pilot, lambda: app.benches.of_hosts(NAMES), "it is measured", 60)
        assert watch is not None
        ended = await until(pilot, lambda: watch.ended, "it is over", 240)
        assert ended is not None
        assert watch.follower.view.exit_code == 0, watch.follower.view.reason
        await pilot.press("escape", "escape")
        warned = "gpu1 ↔ gpu3: .* measured"
        await until(pilot, lambda: re.search(warned, text_of(app, "#findings-text")), "what was measured is shown", 60)
        kept, findings = ended
        found = [finding.subject for finding in findings if finding.code in ("link-slow", "host-slow")]
        return kept.report, found, text_of(app, "#findings-text")


def test_exactly_the_one_slow_link_is_named_and_screen_and_estimate_follow(
    deployed: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10 Mbit/s between two of three hosts: within 10% of that, and 20% of a plain ping-pong in the same run."""
    monkeypatch.setattr(bench_words, "USUAL_LARGEST", LARGEST)
    declared = {"gpu": {"count": 2, "type": "A100", "memory": "80GB"}}
    with_gpus = deployed.inventory(tmp_path / "gpus.yaml", resources=declared)
    (job_file := tmp_path / "job.yaml").write_text(JOB)

    def estimate() -> dict[str, Any]:
        done = dttui_here("estimate", job_file, "--inventory", with_gpus, "--output", "json")
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    before = estimate()
    try:
        for here, there in (("gpu1", "gpu3"), ("gpu3", "gpu1")):
            deployed[here].limit_to(deployed[there], "10mbit")
        # Else the third host's links would be as fast as the machine happens to be, each another: here both are alike.
        deployed["gpu2"].limit("200mbit")
        ends = deployed["gpu1"], deployed["gpu3"]
        plain = [ping_pong(*ends) for _time in range(PLAIN)]
        report, found, warned = asyncio.run(measured_from_the_screen(deployed.inventory(tmp_path / "inventory.yaml")))
        plain += [ping_pong(*ends) for _time in range(PLAIN)]
    finally:
        deployed.restore()
    links = {link.between: link for link in report.links}
    slow = links["gpu1", "gpu3"]
    figures = {ends: (link.bandwidth, link.latency_s, link.tcp_latency_s) for ends, link in links.items()}
    print(f"plain ping-pong {plain} s; links {figures}")
    assert found == ["gpu1 ↔ gpu3"], figures
    assert slow.bandwidth == pytest.approx(TEN_MBIT, rel=0.1)
    assert slow.tcp_latency_s is not None
    # On a quiet machine all of the plain ones are alike; with much else to do each waits for a core in its own way.
    assert any(slow.tcp_latency_s == pytest.approx(one, rel=0.2) for one in plain), (slow.tcp_latency_s, plain)
    others = [link.bandwidth for ends, link in links.items() if ends != slow.between]
    assert all(bandwidth is not None and bandwidth > 10 * TEN_MBIT for bandwidth in others), figures
    assert report.interfaces == dict.fromkeys(NAMES, "eth0")
    assert slow.bandwidth is not None
    assert f"{slow.bandwidth * 8 / 1e9:.3g} Gbit/s a node, measured" in warned
    after = estimate()
    assert before["inputs"]["inter_bandwidth"]["source"] == "default"
    assert after["inputs"]["inter_bandwidth"]["source"] == "measured"
    assert after["inputs"]["inter_bandwidth"]["value"] == pytest.approx(TEN_MBIT / 2, rel=0.1)
    assert after["step_time_s"]["value"] > 20 * before["step_time_s"]["value"]
