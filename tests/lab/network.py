"""The lab's network: a switch in the rack's namespace, one cable to the login node and one to each host.

A cable pulled at the switch keeps its carrier, and every machine knows the others' hardware addresses for good, so
packets vanish without any answer: no reset, no "host unreachable".
"""

from __future__ import annotations

import ipaddress
import json
import re

from tests.lab.blueprint import Cable
from tests.lab.commands import LabError, call, in_network_of, ip_batch, ip_if_there
from tests.lab.leftovers import INTERFACE_PREFIX, label

LEAST_PACKET = 1000
"""Bytes that the smallest packet counts as, on a link between two hosts that is limited."""
_FIRST_HOST = 11
_BITS = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}


class Network:
    """The switch of one lab, on a subnet 10.77.N.0/24 that no other lab of this machine has."""

    def __init__(self, rack_pid: int) -> None:
        self._rack_pid = rack_pid
        ip_batch(
            "link add switch type bridge mcast_snooping 0", "link set lo up", "link set switch up", network_of=rack_pid
        )
        self.number = self._claim()
        self.interface = f"{INTERFACE_PREFIX}{self.number}"
        self.login_address = f"10.77.{self.number}.1"

    def _claim(self) -> int:
        """Lay the cable to the login node; its name can exist only once, which reserves the subnet of its number."""
        links = json.loads(call(["ip", "-json", "-4", "address"]))
        used = [
            ipaddress.ip_network(f"{address['local']}/{address['prefixlen']}", strict=False)
            for link in links
            for address in link.get("addr_info", [])
        ]
        for number in range(256):
            subnet = ipaddress.ip_network(f"10.77.{number}.0/24")
            if any(subnet.overlaps(other) for other in used):
                continue
            interface = f"{INTERFACE_PREFIX}{number}"
            mac = self._mac(number, 1)
            peer = f"peer name uplink netns {self._rack_pid}"
            try:
                ip_batch(f"link add {interface} address {mac} type veth {peer}")
            except LabError as error:
                if "File exists" in str(error):
                    continue
                raise
            call(["ip", "link", "set", interface, "alias", label(self._rack_pid)])
            ip_batch(f"address add 10.77.{number}.1/24 dev {interface}", f"link set {interface} up")
            ip_batch("link set uplink master switch up", network_of=self._rack_pid)
            return number
        raise LabError("every subnet 10.77.N.0/24 is in use on this machine")

    @staticmethod
    def _mac(number: int, last: int) -> str:
        return f"02:64:74:{number:02x}:00:{last:02x}"

    def address(self, index: int) -> str:
        """Return the address of the host of an index."""
        return f"10.77.{self.number}.{_FIRST_HOST + index}"

    def cable(self, index: int, host_count: int) -> Cable:
        """Return the link of one of `host_count` hosts."""
        others = [(self.login_address, self._mac(self.number, 1))]
        others += [
            (self.address(other), self._mac(self.number, _FIRST_HOST + other))
            for other in range(host_count)
            if other != index
        ]
        mac = self._mac(self.number, _FIRST_HOST + index)
        return Cable(f"port{index}", f"{self.address(index)}/24", mac, tuple(others))

    def introduce(self, cables: list[Cable]) -> None:
        """Tell the login node the hosts' hardware addresses."""
        ip_batch(
            *(
                f"neighbour replace {cable.address.partition('/')[0]} lladdr {cable.mac} nud permanent"
                f" dev {self.interface}"
                for cable in cables
            )
        )

    def pull(self, cable: Cable) -> None:
        """Take a cable out of the switch, if it is still there."""
        ip_if_there(f"link set {cable.port} nomaster", network_of=self._rack_pid)

    def plug(self, cable: Cable) -> None:
        """Put a cable back into the switch."""
        ip_batch(f"link set {cable.port} master switch", network_of=self._rack_pid)

    def remove(self, cable: Cable) -> None:
        """Remove a cable, both its ends; its host is gone, and may have taken it along."""
        ip_if_there(f"link delete {cable.port}", network_of=self._rack_pid)

    def limit(self, cable: Cable, host_pid: int, rate: str) -> None:
        """Limit a host's bandwidth, each way, to a rate such as `1mbit`."""
        match = re.fullmatch(r"([1-9]\d*)(kbit|mbit|gbit)", rate)
        if match is None:
            raise LabError(f"{rate!r} is not a rate; write 500kbit, 1mbit or 2gbit")
        # A bucket must hold what the rate lets through between two ticks of the slowest kernel clock, 10 ms.
        burst_bytes = max(32 * 1024, int(match[1]) * _BITS[match[2]] // 8 // 100)
        for pid, device in ((self._rack_pid, cable.port), (host_pid, "eth0")):
            shape = ["tbf", "rate", rate, "burst", str(burst_bytes), "latency", "400ms"]
            call([*in_network_of(pid), "tc", "qdisc", "replace", "dev", device, "root", *shape])

    def unlimit(self, cable: Cable, host_pid: int) -> None:
        """Let a limited host's traffic flow freely again."""
        for pid, device in ((self._rack_pid, cable.port), (host_pid, "eth0")):
            call([*in_network_of(pid), "tc", "qdisc", "delete", "dev", device, "root"])

    def limit_to(self, host_pid: int, address: str, rate: str) -> None:
        """Limit what a host sends to one address to a rate such as `10mbit`; the rest of its traffic stays free.

        Each packet counts as `LEAST_PACKET` bytes at least, so that small messages take a known time: a rate alone lets
        them through as fast as the machine happens to be.
        """
        shape = [
            ["qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1"],
            [
                "class",
                "add",
                "dev",
                "eth0",
                "parent",
                "1:",
                "classid",
                "1:1",
                "htb",
                "rate",
                "40gbit",
                "quantum",
                "60000",
            ],
            ["class", "add", "dev", "eth0", "parent", "1:", "classid", "1:2", "htb", "rate", rate],
            ["filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip", "prio", "1", "u32"],
        ]
        shape[1] += ["quantum", "60000"]
        shape[2] += ["burst", "1600", "cburst", "1600", "mpu", str(LEAST_PACKET)]
        shape[3] += ["match", "ip", "dst", f"{address}/32", "flowid", "1:2"]
        for command in shape:
            call([*in_network_of(host_pid), "tc", *command])

    def unlimit_to(self, host_pid: int) -> None:
        """Let what a host sends flow freely again."""
        call([*in_network_of(host_pid), "tc", "qdisc", "delete", "dev", "eth0", "root"])

    def filter_port(self, host_pid: int, port: int, *, dropped: bool) -> None:
        """Drop what reaches or leaves a TCP port of a host, or let it pass again; the host's own loopback is spared."""
        action = "--append" if dropped else "--delete"
        for rule in (
            ["INPUT", "!", "--in-interface", "lo", "--protocol", "tcp", "--dport", str(port)],
            ["OUTPUT", "!", "--out-interface", "lo", "--protocol", "tcp", "--sport", str(port)],
        ):
            call([*in_network_of(host_pid), "iptables", "--wait", action, *rule, "--jump", "DROP"])

    def close(self) -> None:
        """Remove the login node's end, and so the cable; the rest goes with the rack."""
        ip_if_there(f"link delete {self.interface}")
