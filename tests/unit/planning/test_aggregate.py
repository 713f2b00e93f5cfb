"""What ticked environments add up to."""

from __future__ import annotations

import pytest

from dttui.inventory.models import GpuResources, Resources
from dttui.planning.aggregate import Choice, aggregate
from dttui.planning.gpu_names import gpu_type
from tests.unit.seed_cluster import GB, MIB, SEED, environment, host_facts


def test_the_seeds_three_environments_add_up_as_the_seed_says() -> None:
    total = aggregate(Choice(item) for item in SEED.environments)
    assert total.node_count == 3
    assert total.gpu_count == 14
    assert total.gpu_types == {"A100": 14}
    assert total.cpu_count == 112
    assert total.memory_bytes == 896 * GB
    assert total.gpu_memory_bytes == 14 * 80 * GB
    assert total.zones == ("beijing-a", "shenzhen-c", "shanghai-a")
    assert total.is_distributed


def test_the_seeds_single_environment_is_not_distributed() -> None:
    total = aggregate([Choice(SEED.environments[0])])
    assert (total.gpu_count, total.cpu_count, total.memory_bytes) == (2, 16, 128 * GB)
    assert total.zones == ("beijing-a",)
    assert not total.is_distributed


def test_types_and_zones_come_once_in_the_order_of_choice() -> None:
    v100 = Resources(gpu=GpuResources(count=2, type="V100"))
    choices = [
        Choice(environment("a", resources=v100, zone="z1")),
        Choice(environment("b", 2, zone="z1")),
        Choice(environment("c", resources=v100)),
    ]
    total = aggregate(choices)
    assert list(total.gpu_types.items()) == [("V100", 4), ("A100", 2)]
    assert total.zones == ("z1",)


def test_facts_win_over_what_is_declared() -> None:
    facts = host_facts(1, "NVIDIA H100 80GB HBM3", cpu_count=48, memory_total_mib=1000)
    total = aggregate([Choice(SEED.environments[0], facts)])
    assert (total.gpu_count, total.gpu_types) == (1, {"H100": 1})
    assert total.gpu_memory_bytes == (facts.gpus[0].memory_total_mib or 0) * MIB
    assert (total.cpu_count, total.memory_bytes) == (48, 1000 * MIB)


def test_only_the_gpus_that_the_job_asks_for_are_counted() -> None:
    v100 = Resources(gpu=GpuResources(count=2, type="V100"))
    total = aggregate([Choice(environment("a", 4), gpus_asked=1), Choice(environment("b", resources=v100))])
    assert (total.gpu_count, total.gpus_there, total.gpu_types) == (3, 6, {"A100": 1, "V100": 2})
    assert total.gpu_memory_bytes == 80 * GB  # The V100s do not say how much they have.
    assert total.leaves_gpus
    assert not aggregate([Choice(environment("a", 4), gpus_asked=9)]).leaves_gpus


def test_simulated_gpus_stay_as_declared_whatever_the_host_has() -> None:
    simulated = Resources(gpu=GpuResources(count=4, type="A100", simulated=True))
    choice = Choice(environment("a", resources=simulated), host_facts(8, "NVIDIA H100 NVL", cpu_count=2))
    total = aggregate([choice])
    assert (total.gpu_count, total.simulated_gpu_count, total.gpu_types) == (4, 4, {"A100": 4})
    assert total.cpu_count == 2


def test_nothing_chosen_and_nothing_known_add_up_to_nothing() -> None:
    assert aggregate([]).node_count == 0
    total = aggregate([Choice(environment("a"))])
    assert (total.node_count, total.gpu_count, total.cpu_count, total.memory_bytes, total.zones) == (
        1,
        0,
        None,
        None,
        (),
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("A100", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce GTX 1080 Ti", "GTX 1080 Ti"),
        ("NVIDIA GeForce RTX 3070 Laptop GPU", "RTX 3070"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("Quadro RTX 8000", "RTX 8000"),
        ("NVIDIA TITAN RTX", "TITAN RTX"),
        ("NVIDIA", "NVIDIA"),
    ],
)
def test_the_drivers_names_are_cut_to_the_model(name: str, expected: str) -> None:
    assert gpu_type(name) == expected


def test_what_no_environment_says_is_not_known_rather_than_nothing() -> None:
    total = aggregate([Choice(environment("a")), Choice(environment("b"))])
    assert (total.gpus_known, total.cpu_count, total.memory_bytes) == (False, None, None)
    assert total.gpu_memory_bytes is None
    assert aggregate([Choice(environment("a"), gpus_asked=2)]).gpus_known
    assert aggregate([Choice(environment("a"), host_facts(0, "", cpu_count=4))]).cpu_count == 4
