"""Proves what the test cluster promises of running hosts and of faults, on a real one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from dttui.inventory.models import Inventory
from tests.lab.commands import LabError
from tests.lab.host import Host, HostCommandError
from tests.lab.hosts import Lab
from tests.lab.probes import SYSTEM_PYTHON, connect_from, ssh
from tests.waiting import wait_until

_SILENT_S = 1.0
"""Silence of this length, where an answer takes milliseconds, shows that nothing gets through."""
_COUNTING_SERVER = """\
import os, socket, sys
server = socket.create_server(("", int(sys.argv[1])))
if os.fork():
    os._exit(0)
os.setsid()
nowhere = os.open(os.devnull, os.O_RDWR)
for fd in range(3):
    os.dup2(nowhere, fd)
while True:
    client, _ = server.accept()
    if os.fork():
        client.close()
        continue
    stream = client.makefile("rwb")
    while line := stream.readline():
        count = int(line)
        stream.read(max(0, count))
        stream.write(bytes(max(0, -count)) + b"got it\\n")
        stream.flush()
    os._exit(0)
"""
"""Reads a number in a line, then as many bytes, answers, and so on; of a negative one it sends as many bytes back."""


def _serve(host: Host, port: int) -> None:
    host.run([SYSTEM_PYTHON, "-c", _COUNTING_SERVER, str(port)])


def _send(connection: socket.socket, byte_count: int = 1) -> None:
    connection.sendall(b"%d\n" % byte_count + bytes(byte_count))


@pytest.mark.lab
class TestRunningHosts:
    def test_ssh_logs_in_as_root_knowing_the_hosts_key(self, lab3: Lab) -> None:
        for host in lab3.values():
            done = ssh(lab3, host, "id -un; hostname")
            assert (done.returncode, done.stdout.split()) == (0, ["root", host.name]), done.stderr

    def test_ssh_gives_a_terminal_and_sftp(self, lab3: Lab) -> None:
        host = lab3["gpu3"]
        assert ssh(lab3, host, "tty", options=("-tt",)).stdout.startswith("/dev/pts/")
        assert ssh(lab3, host, "sftp", options=("-s",)).returncode == 0

    def test_another_key_is_refused(self, lab3: Lab, tmp_path: Path) -> None:
        stranger = tmp_path / "stranger"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(stranger)], check=True)
        host = lab3["gpu1"]
        command = ["ssh", "-F", "none", "-o", f"UserKnownHostsFile={lab3.known_hosts}", "-o", "BatchMode=yes"]
        command += ["-o", "IdentitiesOnly=yes", "-i", str(stranger), f"root@{host.address}", "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 255
        assert "Permission denied" in done.stderr

    def test_every_host_has_a_key_of_its_own_and_tells_its_fingerprint(self, lab3: Lab, tmp_path: Path) -> None:
        for host in lab3.values():
            key = tmp_path / host.name
            key.write_text(host.host_key + "\n")
            shown = subprocess.run(["ssh-keygen", "-lf", str(key)], capture_output=True, text=True, check=True).stdout
            assert host.fingerprint in shown
        assert len({host.fingerprint for host in lab3.values()}) == 3

    def test_hosts_have_their_own_files(self, lab3: Lab) -> None:
        first, second, _ = lab3.values()
        for path in ("/etc/mark", "/root/mark", "/tmp/mark", "/var/tmp/mark", "/run/mark", "/dev/shm/mark"):
            first.run(["tee", path], input=first.name.encode())
            assert second.run(["test", "-e", path], check=False).returncode == 1, path
            assert not Path(path).exists()
            assert first.run(["cat", path]).stdout == first.name.encode()
            first.run(["rm", path])

    def test_hosts_do_not_see_the_machines_scratch_files(self, lab3: Lab) -> None:
        for host in lab3.values():
            for directory in ("/tmp", "/var/tmp", "/dev/shm"):
                assert host.run(["ls", "-A", directory]).stdout == b""

    def test_hosts_have_their_own_processes_names_and_boots(self, lab3: Lab) -> None:
        for host in lab3.values():
            found = host.processes()
            assert found[0].pid == 1
            assert any("sshd" in process.cmdline for process in found)
            assert not any("pytest" in process.cmdline for process in found)
            assert host.run(["hostname"]).stdout.decode().strip() == host.name
            assert host.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.decode().strip() == host.boot_id
        assert len({host.boot_id for host in lab3.values()}) == 3

    def test_hosts_have_their_own_shared_memory(self, lab3: Lab) -> None:
        first, second, _ = lab3.values()
        empty = second.run(["ipcs", "-m"]).stdout
        segment = first.run(["ipcmk", "-M", "4096"]).stdout.split()[-1].decode()
        assert first.run(["ipcs", "-m"]).stdout != empty
        assert second.run(["ipcs", "-m"]).stdout == empty
        first.run(["ipcrm", "-m", segment])

    def test_a_host_sees_its_own_interfaces_only(self, lab3: Lab) -> None:
        for host in lab3.values():
            assert sorted(host.run(["ls", "/sys/class/net"]).stdout.split()) == [b"eth0", b"lo"]

    def test_hosts_reach_each_other_by_name_and_nothing_else(self, lab3: Lab) -> None:
        for host in lab3.values():
            for other in lab3:
                assert connect_from(host, other, 22) == "connected"
            assert connect_from(host, "192.0.2.1", 22) == "OSError 101"

    def test_hosts_reach_the_login_node(self, lab3: Lab) -> None:
        with socket.create_server((lab3.login_address, 0)) as server:
            port = server.getsockname()[1]
            assert connect_from(lab3["gpu2"], "login", port) == "connected"

    def test_a_login_runs_nothing_of_what_root_has_set_up_for_shells_here(self, lab3: Lab) -> None:
        host = lab3["gpu1"]
        for name in (".bashrc", ".profile", ".bash_profile"):
            assert host.run(["test", "-e", f"/root/{name}"], check=False).returncode == 1, name
        assert "PYENV_SHELL" not in ssh(lab3, host, "env").stdout

    def test_orphans_are_reaped(self, lab3: Lab) -> None:
        host = lab3["gpu1"]
        orphan = int(host.run(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]).stdout)
        assert orphan in {process.pid for process in host.processes()}
        host.run(["kill", str(orphan)])
        wait_until(lambda: orphan not in {process.pid for process in host.processes()}, "the orphan to be reaped")

    def test_a_command_that_takes_too_long_is_killed(self, lab3: Lab) -> None:
        host = lab3["gpu1"]
        with pytest.raises(subprocess.TimeoutExpired):
            host.run(["sleep", "1000"], timeout=0.3)
        wait_until(lambda: not any("sleep" in item.cmdline for item in host.processes()), "the command has ended")

    def test_a_command_that_fails_says_what_it_said(self, lab3: Lab) -> None:
        with pytest.raises(HostCommandError, match=r"gpu1: cat /nowhere ended with 1: .*No such file"):
            lab3["gpu1"].run(["cat", "/nowhere"])

    def test_the_inventory_is_one_that_dttui_reads(self, lab3: Lab, tmp_path: Path) -> None:
        path = lab3.inventory(tmp_path / "inventory.yaml", kind="jupyter", python=None, gpu2={"zone": "zone-z"})
        inventory = Inventory.model_validate(yaml.safe_load(path.read_text()))
        assert [item.zone for item in inventory.environments] == ["zone-a", "zone-z", "zone-b"]
        assert [item.resources.gpu and item.resources.gpu.count for item in inventory.environments] == [1, 1, 2]
        assert {(item.kind, item.python, item.user) for item in inventory.environments} == {("jupyter", None, "root")}
        assert [item.host for item in inventory.environments] == [host.address for host in lab3.values()]


@pytest.mark.lab
class TestFaults:
    def test_a_killed_host_falls_silent_and_keeps_its_files(self, breakable_lab3: Lab) -> None:
        host = breakable_lab3["gpu2"]
        _serve(host, 7001)
        host.run(["tee", "/var/tmp/kept"], input=b"kept")
        host.run(["tee", "/tmp/lost"], input=b"lost")
        first_boot = host.boot_id
        with socket.create_connection((host.address, 7001), timeout=20) as connection:
            host.kill()
            assert not host.alive
            with pytest.raises(LabError, match="gpu2 is switched off"):
                host.processes()
            connection.settimeout(_SILENT_S)
            _send(connection)
            with pytest.raises(TimeoutError):
                connection.recv(1)
        with pytest.raises(TimeoutError):
            socket.create_connection((host.address, 22), timeout=_SILENT_S)
        host.start()
        assert host.boot_id != first_boot
        assert host.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.decode().strip() == host.boot_id
        assert host.run(["cat", "/var/tmp/kept"]).stdout == b"kept"
        assert host.run(["ls", "-A", "/tmp"]).stdout == b""
        assert not any("create_server" in process.cmdline for process in host.processes())
        assert ssh(breakable_lab3, host, "hostname").stdout == "gpu2\n"
        host.run(["rm", "/var/tmp/kept"])

    def test_a_cut_link_is_silent_and_heals(self, breakable_lab3: Lab) -> None:
        host = breakable_lab3["gpu2"]
        _serve(host, 7002)
        with socket.create_connection((host.address, 7002), timeout=20) as connection:
            _send(connection)
            assert connection.recv(100) == b"got it\n"
            host.cut()
            connection.settimeout(_SILENT_S)
            _send(connection)
            with pytest.raises(TimeoutError):
                connection.recv(100)
            with pytest.raises(TimeoutError):
                socket.create_connection((host.address, 22), timeout=_SILENT_S)
            assert connect_from(breakable_lab3["gpu1"], host.address, 22, _SILENT_S) == "TimeoutError None"
            assert connect_from(host, "gpu1", 22, _SILENT_S) == "TimeoutError None"
            assert connect_from(breakable_lab3["gpu1"], "gpu3", 22) == "connected"
            host.heal()
            connection.settimeout(30)
            assert connection.recv(100) == b"got it\n"
        assert ssh(breakable_lab3, host, "true").returncode == 0

    def test_a_dropped_port_is_silent_and_the_others_are_not(self, breakable_lab3: Lab) -> None:
        host = breakable_lab3["gpu1"]
        _serve(host, 7003)
        host.drop_port(7003)
        with pytest.raises(TimeoutError):
            socket.create_connection((host.address, 7003), timeout=_SILENT_S)
        assert connect_from(host, "127.0.0.1", 7003) == "connected"
        assert ssh(breakable_lab3, host, "true").returncode == 0
        host.restore_port(7003)
        socket.create_connection((host.address, 7003), timeout=20).close()

    def test_a_limit_slows_both_ways_until_it_is_lifted(self, breakable_lab3: Lab) -> None:
        host = breakable_lab3["gpu1"]
        _serve(host, 7004)

        def seconds_for(byte_count: int) -> float:
            with socket.create_connection((host.address, 7004), timeout=120) as connection:
                began = time.monotonic()
                _send(connection, byte_count)
                assert connection.recv(100) == b"got it\n"
                return time.monotonic() - began

        def seconds_back(byte_count: int) -> float:
            with socket.create_connection((host.address, 7004), timeout=120) as connection:
                began = time.monotonic()
                connection.sendall(b"-%d\n" % byte_count)
                assert connection.makefile("rb").read(byte_count + len(b"got it\n")).endswith(b"\0got it\n")
                return time.monotonic() - began

        host.limit("1mbit")
        # 256 KiB less the bucket of 32 KiB take 1.8 s at 125,000 bytes/s.
        assert seconds_for(256 * 1024) > 1.5
        assert seconds_back(256 * 1024) > 1.5
        host.unlimit()
        # Again and again, as one of them may be held up by whatever else runs here.
        wait_until(lambda: seconds_for(256 * 1024) < 1.0, "the way there to be free")
        wait_until(lambda: seconds_back(256 * 1024) < 1.0, "the way back to be free")
        with pytest.raises(LabError, match="write 500kbit, 1mbit or 2gbit"):
            host.limit("fast")

    def test_restore_puts_everything_right(self, breakable_lab3: Lab) -> None:
        lab = breakable_lab3
        lab["gpu1"].kill()
        lab["gpu2"].cut()
        lab["gpu2"].drop_port(22)
        lab["gpu3"].limit("100kbit")
        os.kill(lab["gpu3"].pid, signal.SIGKILL)
        wait_until(lambda: not lab["gpu3"].alive, "a host whose PID 1 is killed is off")
        lab.restore()
        for host in lab.values():
            assert ssh(lab, host, "hostname").stdout.strip() == host.name
