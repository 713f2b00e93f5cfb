"""The embedded cluster's inventory."""

from __future__ import annotations

from pathlib import Path

from dttui.inventory import demo_inventory, parse_inventory
from dttui.inventory.demo import CORPUS
from dttui.locations import shipped
from dttui.planning.aggregate import Choice, aggregate
from dttui.spec.yaml_writer import dump_yaml


def test_the_embedded_cluster_has_three_simulated_environments_in_two_zones() -> None:
    inventory = demo_inventory(Path("/var/tmp/demo"), Path("/examples"), "/usr/bin/python3")
    total = aggregate(Choice(item) for item in inventory.environments)
    assert (total.node_count, total.gpu_count, total.simulated_gpu_count) == (3, 14, 14)
    assert total.gpu_types == {"A100": 14}
    assert total.zones == ("beijing-a", "shenzhen-c")
    assert (total.cpu_count, total.memory_bytes) == (112, 896 * 10**9)
    assert all(item.local and item.simulated for item in inventory.environments)
    assert {item.python for item in inventory.environments} == {"/usr/bin/python3"}
    assert {item.training_address for item in inventory.environments} == {"127.0.0.1"}
    roots = [item.agent_root for item in inventory.environments]
    assert roots == [f"/var/tmp/demo/{item.name}" for item in inventory.environments]


def test_its_corpus_is_a_file_that_ships() -> None:
    inventory = demo_inventory(Path("/x"), shipped("examples"), "python3")
    dataset = inventory.find_dataset("tiny-corpus")
    assert dataset is not None
    assert [version.id for version in dataset.versions] == ["v1"]
    assert Path(dataset.versions[0].path) == shipped("examples") / CORPUS
    assert Path(dataset.versions[0].path).is_file()


def test_it_can_be_written_down_as_an_inventory_file() -> None:
    inventory = demo_inventory(Path("/x"), Path("/y"), "python3")
    assert parse_inventory(dump_yaml(inventory.model_dump(mode="json", exclude_none=True)), "x") == inventory
