"""The types of GPUs that are known: what drivers call them, what they have, and how their hosts are usually joined."""

from __future__ import annotations

import pytest

from dttui.planning.cost.hardware import INTER_BANDWIDTH, default_links, gpu_table

GBIT = 1e9 / 8


@pytest.mark.parametrize(
    ("said", "name", "bf16", "memory_gib", "network_gbit"),
    [
        # By the makers' data sheets, as bench/measured_runs/hardware.md has them, and by what NVML reports of memory.
        ("NVIDIA GB200", "GB200-192GB", 2500, 189_471 / 1024, 400),
        ("NVIDIA GB300", "GB300-288GB", 2500, 275_040 / 1024, 800),
        ("NVIDIA B300 SXM6 AC", "B300-288GB", 2250, 275_040 / 1024, 800),
        ("NVIDIA B200", "B200-180GB", 2250, 183_359 / 1024, 400),
        ("NVIDIA H100 80GB HBM3", "H100-80GB", 989.4, 80, 400),
        ("NVIDIA H200", "H200-141GB", 989.4, 143_771 / 1024, 400),
        ("AMD Instinct MI300X OAM", "MI300X-192GB", 1307.4, 192, 400),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB", 312, 80, 200),
        ("NVIDIA GeForce RTX 5090", "RTX-5090-32GB", 209.5, 32_607 / 1024, 25),
    ],
)
def test_a_gpu_has_what_its_maker_says_and_its_hosts_are_joined_as_is_usual(
    said: str, name: str, bf16: float, memory_gib: float, network_gbit: float
) -> None:
    gpu = gpu_table().find(said)
    assert gpu is not None
    assert gpu.name == name
    assert gpu.bf16 == bf16
    assert gpu.memory_gib == pytest.approx(memory_gib, rel=0.01)
    assert default_links(gpu)[1].bandwidth == pytest.approx(network_gbit * GBIT)


def test_every_type_names_its_source_and_has_a_network() -> None:
    for gpu in gpu_table().gpus:
        assert len(gpu.source) > len("gpus.yaml"), gpu.name
        assert gpu.network is not None or gpu.link in INTER_BANDWIDTH, gpu.name


def test_racks_that_nvlink_joins_are_of_seventy_two() -> None:
    assert {gpu.type: gpu.domain for gpu in gpu_table().gpus if gpu.domain} == {"GB200": 72, "GB300": 72}
