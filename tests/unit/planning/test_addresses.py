"""What a plan says of the addresses at which nodes are reached."""

from __future__ import annotations

import pytest

from dttui.inventory import Inventory
from dttui.planning.models import Severity
from dttui.planning.planner import plan
from tests.unit.planning.test_findings import of_environments, only
from tests.unit.seed_cluster import environment, host_facts, make_job


def test_a_master_on_loopback_cannot_be_reached_by_others() -> None:
    found = of_environments(environment("a", 1, host="localhost", local=True), environment("b", 1, host="10.0.0.2"))
    finding = only("master-loopback", found, Severity.ERROR)
    assert "b cannot reach the master a by localhost" in finding.message
    ipv6 = of_environments(environment("a", address="::1"), environment("b"))
    assert "master-loopback" in ipv6


def test_loopback_is_fine_where_all_are_on_this_machine() -> None:
    found = of_environments(
        environment("a", 1, host="localhost", local=True, agent_root="/a"),
        environment("b", 1, host="localhost", local=True, agent_root="/b"),
    )
    assert found == {}


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2001:4860:4860::8888", "[2606:4700::1111]", "::ffff:8.8.8.8", "100.63.0.1", "172.32.0.1"]
)
@pytest.mark.parametrize("is_master", [True, False])
def test_a_public_address_is_warned_of_wherever_it_is(address: str, is_master: bool) -> None:
    nodes = [environment("a", 1, address=address), environment("b", 1, address="10.0.0.2")]
    found = of_environments(*(nodes if is_master else nodes[::-1]))
    finding = only("public-address", found, Severity.WARNING)
    assert finding.subject == "a"
    assert finding.message.startswith(f"a ({address.strip('[]')}): a public address, ")
    assert of_environments(nodes[0]) == {}, "alone it listens on loopback"


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.255.254",
        "169.254.1.1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "::ffff:10.0.0.1",
        "gpu1.example.org",
    ],
)
def test_an_address_that_is_private_or_not_known_is_not_warned_of(address: str) -> None:
    assert of_environments(environment("a", 1, address=address), environment("b", 1, address="10.0.0.2")) == {}


def test_of_what_a_name_stands_for_the_hosts_own_addresses_tell() -> None:
    inventory = Inventory(environments=(environment("a", 1, host="gpu1.example.org"), environment("b", 1)))
    for addresses, is_told in (({"eth0": ["10.0.0.1"], "eth1": ["8.8.8.8"]}, True), ({"eth0": ["10.0.0.1"]}, False)):
        known = {"a": host_facts(1, addresses=addresses)}
        told = [item for item in plan(make_job("a", "b"), inventory, known).findings if item.code == "public-address"]
        assert [item.message.partition(":")[0] for item in told] == ["a (8.8.8.8)"] * is_told


def test_public_addresses_of_many_nodes_are_one_finding() -> None:
    nodes = [environment(f"n{index}", 1, address=f"8.8.8.{index}") for index in range(1, 6)]
    finding = only("public-address", of_environments(*nodes), Severity.WARNING)
    assert finding.message.startswith("n1 (8.8.8.1), n2 (8.8.8.2), n3 (8.8.8.3), …: public addresses, ")
