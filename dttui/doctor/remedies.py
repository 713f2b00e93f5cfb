"""The commands that mend what is wrong, ready to copy. Pure; nothing here is ever run by dttui."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from dttui.doctor.models import Remedy

SHM_GIB = 8
MOST_FILES, MOST_PROCESSES = 65536, 65536
CUDA_BUILDS = (118, 121, 124, 126, 128, 130)
"""Of CUDA, those that torch is built for; `cu126` is the name of an index."""

_INDEX = "https://download.pytorch.org/whl/cu"


@dataclass(frozen=True)
class Remedies:
    """For one machine: what is run there, and how dttui is to be called about it."""

    host: str | None
    """The environment; `None` for the login node."""
    user: str
    """Who we are there."""
    options: tuple[str, ...] = ()
    """What dttui itself was called with: `--inventory FILE`."""

    def there(self, line: str) -> Remedy:
        """Return a line that is run there as the user."""
        return Remedy(line, self.host)

    def as_root(self, line: str) -> Remedy:
        """Return a line that only root may run there."""
        if self.user == "root":
            return self.there(line)
        return self.there(f"sudo sh -c {shlex.quote(line)}" if re.search(r"[|&;<>]", line) else f"sudo {line}")

    def dttui(self, *words: str) -> Remedy:
        """Return a call of dttui on the login node, about this host."""
        return Remedy(shlex.join(["dttui", *words, *([self.host] if self.host else []), *self.options]))

    def enlarge_shm(self) -> Remedy:
        """Give shared memory a size that several ranks can work with."""
        return self.as_root(f"mount -o remount,size={SHM_GIB}G /dev/shm")

    def show_use(self, mount: str) -> Remedy:
        """Show what takes the room of a file system; what of it may go, only the person knows."""
        return self.as_root(f"du -xh --max-depth=3 {shlex.quote(mount)} | sort -h | tail -20")

    def raise_limit(self, item: str, wanted: str, agent: str | None) -> tuple[Remedy, ...]:
        """Let logins have more of something from now on, and the agent be started by such a login.

        Args:
            item: as limits.conf calls it.
            wanted: how much.
            agent: the agent's root, where one serves.
        """
        file = f"/etc/security/limits.d/90-dttui-{item}.conf"
        first = self.as_root(f"printf '%s\\n' '{self.user} - {item} {wanted}' > {file}")
        return (first, *self.restart_agent(agent))

    def restart_agent(self, root: str | None) -> tuple[Remedy, ...]:
        """End the agent's daemon, whose jobs go on, and have another one started."""
        if root is None:
            return ()
        stop = shlex.join([f"{root}/current/bin/dtagent", "stop", "--root", root])
        return (self.there(stop), self.dttui("envs"))

    def own_name(self, name: str, address: str) -> Remedy:
        """Have a host's own name stand for an address that others reach."""
        short = re.escape(name.partition(".")[0])
        drop = rf":a;/^(127\.|::1)/s/[[:space:]]+{short}(\.[^[:space:]]+)?([[:space:]]|$)/\2/;ta"
        tidy = r"/^[0-9a-f.:]+[[:space:]]*$/d"
        edit = shlex.join(["sed", "-i", "-E", "-e", drop, "-e", tidy, "/etc/hosts"])
        return self.as_root(f"{edit} && echo {shlex.quote(f'{address} {name}')} >> /etc/hosts")

    def name_address(self, address: str, name: str) -> Remedy:
        """Have an address looked up in /etc/hosts instead of by a name server."""
        return self.as_root(f"echo {shlex.quote(f'{address} {name}')} >> /etc/hosts")

    def sshd_option(self, name: str, value: str) -> Remedy:
        """Set an option of the SSH server, whose first word counts."""
        line = f"sed -i '1i {name} {value}' /etc/ssh/sshd_config && kill -HUP \"$(cat /run/sshd.pid)\""
        return self.as_root(line)

    def let_in(self, tool: str | None, peer: str) -> Remedy:
        """Let another host's packets through, both ways."""
        address = shlex.quote(peer)
        if tool == "firewall-cmd":
            line = f"firewall-cmd --permanent --zone=trusted --add-source={address} && firewall-cmd --reload"
        elif tool == "ufw":
            line = f"ufw allow from {address} && ufw allow out to {address}"
        elif tool == "nft":
            line = (
                f"nft insert rule inet filter input ip saddr {address} accept && "
                f"nft insert rule inet filter output ip daddr {address} accept"
            )
        else:
            program = "ip6tables" if ":" in peer else "iptables"
            line = f"{program} -I INPUT -s {address} -j ACCEPT && {program} -I OUTPUT -d {address} -j ACCEPT"
        return self.as_root(line)

    def edit_inventory(self) -> Remedy:
        """Open the inventory, where what it says of a host can be corrected."""
        return Remedy(f"${{EDITOR:-vi}} {self._inventory}")

    @property
    def _inventory(self) -> str:
        if "--inventory" in self.options[:-1]:
            return shlex.quote(self.options[self.options.index("--inventory") + 1])
        return '"${DTTUI_INVENTORY:-${XDG_CONFIG_HOME:-$HOME/.config}/dttui/inventory.yaml}"'

    def show_pythons(self) -> Remedy:
        """Show the interpreters that may be named as `python` of the environment."""
        places = "/usr/bin/python3* /usr/local/bin/python3* /opt/*/bin/python3 ~/*/bin/python3"
        return self.there(f"ls -1 {places} 2>/dev/null")

    def show_driver(self) -> Remedy:
        """Show which driver of NVIDIA's is loaded, and which packages it is from."""
        packages = "dpkg -l 'nvidia-driver*' 'nvidia-dkms*' 2>/dev/null || rpm -qa 'nvidia-driver*' 'kmod-nvidia*'"
        return self.there(f"cat /proc/driver/nvidia/version; {packages}")

    def show_addresses(self) -> Remedy:
        """Show the addresses by which others may reach a host."""
        return self.there("ip -br address")

    def show_listeners(self) -> Remedy:
        """Show who has which port."""
        return self.as_root("ss -ltnp")

    def show_gpus(self) -> Remedy:
        """Show what the driver says of errors of the GPUs, and what it wants done."""
        return self.there("nvidia-smi -q -d ECC,PAGE_RETIREMENT,ROW_REMAPPER,PERFORMANCE")

    def show_xids(self) -> Remedy:
        """Show the errors that the driver has written to the kernel's log."""
        return self.as_root("dmesg -T | grep -i xid")

    def install(self, python: str, packages: Sequence[str], index: str | None = None) -> Remedy:
        """Install versions of packages into an interpreter of jobs."""
        argv = [python, "-m", "pip", "install", *packages, *(["--index-url", index] if index else [])]
        return self.there(shlex.join(argv))


def build_index(cuda: str) -> str | None:
    """Return where torch is to be had that was built for this CUDA; `None` where none is."""
    name = cuda.replace(".", "")
    return f"{_INDEX}{name}" if name.isdecimal() and int(name) in CUDA_BUILDS else None


def torch_index(cuda: tuple[int, int]) -> str | None:
    """Return where torch is to be had that a driver of this CUDA runs; `None` where there is none so old."""
    builds = [build for build in CUDA_BUILDS if (build // 10, build % 10) <= cuda]
    return f"{_INDEX}{builds[-1]}" if builds else None
