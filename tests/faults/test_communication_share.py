"""The share of communication that a training measures itself, while the link between its hosts gets slower."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.gloo import LEAVES
from tests.integration.headless import dttui, dttui_here
from tests.lab.host import Host
from tests.lab.hosts import Lab

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300), pytest.mark.xdist_group("lab of watches")]
RATES = ("", "80mbit", "20mbit")
TRAINS = (
    """
import json, os, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(256, 512))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(40):  # Some seconds, of which the measured share is told once.
    time.sleep(0.2)  # What a step computes takes so long, whatever else the machine does.
    loss = model(torch.ones(4, 256)).square().mean()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 1:
        with open(os.environ["DTTUI_METRICS"], "a") as stream:
            stream.write(json.dumps({"rank": 1, "step": step, "loss": loss.item()}) + "\\n")
"""
    + LEAVES
)
"""Gradients of 0.5 MB: a fifth of a second at 20 Mbit/s. The second rank reports, and the first does not."""
JOB = """
distributed_training:
  name: measured
  framework: pytorch-ddp
  run: {script: train.py}
  dataset: none
  model: {parameters: 1.3e5}
  communication: {measure: true}
  cluster:
    nodes: [{id: gpu1, role: master}, {id: gpu2}]
"""


def limit(hosts: list[Host], rate: str) -> None:
    for host in hosts:
        if rate:
            host.limit(rate)


def test_the_share_of_communication_grows_as_the_link_slows_and_is_told_beside_the_estimates(
    deployed: Lab, tmp_path: Path
) -> None:
    """At 20 Mbit/s most of a step; each job is over within 90 s. What the script reports stays the job's course."""
    inventory = deployed.inventory(tmp_path / "inventory.yaml")
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "job.yaml").write_text(JOB)
    shares, ids = [], []
    for rate in RATES:
        try:
            limit([deployed["gpu1"]], rate)
            done = dttui(
                "--apply", tmp_path / "job.yaml", "--inventory", inventory, "--output", "json", deadline_s=90.0
            )
        finally:
            deployed["gpu1"].unlimit()
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        ids.append(told["job_id"])
        shares.append(told["figures"]["communication_percent"]["measured"])
        assert told["communication"]["measured"] == pytest.approx(shares[-1], abs=15)
        assert (told["metric"]["rank"], told["metric"]["step"]) == (1, 39)
    print(f"shares of communication, in percent: {dict(zip(RATES, shares, strict=True))}")
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 40
    assert "% of the time in communication: " in dttui_here("status", ids[2]).stdout
    compared = dttui_here("compare", ids[0], ids[2])
    assert compared.stdout.count("% of the time in communication: ") == 2
