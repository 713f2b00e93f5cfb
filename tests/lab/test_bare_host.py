"""Proves that bare means bare, and that the user's own interpreter is there all the same."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.lab.host import Host, HostCommandError
from tests.lab.hosts import Lab
from tests.lab.interpreter import USER_PREFIX, USER_PYTHON
from tests.lab.probes import SYSTEM_PYTHON, ssh

_CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def bare_host(lab3: Lab) -> Host:
    return lab3["gpu3"]


@pytest.mark.lab
class TestBareHost:
    def test_the_distributions_python_is_the_only_one_on_the_path(self, lab3: Lab, bare_host: Host) -> None:
        path = ssh(lab3, bare_host, "echo $PATH").stdout.strip()
        found = bare_host.run(["find", *path.split(":"), "-regex", r".*/\(python\|pypy\)[0-9.]*"], check=False).stdout
        real = bare_host.run(["readlink", "-f", SYSTEM_PYTHON]).stdout.decode().strip()
        directories = {SYSTEM_PYTHON, real, SYSTEM_PYTHON.replace("/usr", ""), real.replace("/usr", "")}
        assert set(found.decode().split()) <= directories
        assert ssh(lab3, bare_host, "command -v python3").stdout.strip() == SYSTEM_PYTHON

    def test_there_is_no_pip_and_no_wheel_anywhere(self, bare_host: Host) -> None:
        names = ["pip", "pip[0-9]*", "pip-*.dist-info", "ensurepip", "*.whl", "pyvenv.cfg", "pip.conf"]
        wanted = [word for name in names for word in ("-o", "-name", name)][1:]
        # typeshed has stubs of ensurepip, which is not ensurepip.
        pruned = [word for path in ("/proc", "/sys", "*/typeshed") for word in ("-path", path, "-prune", "-o")]
        found = bare_host.run(["find", "/", *pruned, "(", *wanted, ")", "-print"]).stdout.decode().split()
        assert set(found) <= {f"{USER_PREFIX}/pyvenv.cfg"}

    @pytest.mark.parametrize("module", ["pip", "ensurepip"])
    def test_its_python_has_no_way_to_install(self, bare_host: Host, module: str) -> None:
        for python in (SYSTEM_PYTHON, USER_PYTHON):
            done = bare_host.run([python, "-m", module, "--version"], check=False)
            assert done.returncode != 0
            assert b"No module named" in done.stderr

    def test_a_virtual_environment_fails_for_want_of_ensurepip(self, bare_host: Host) -> None:
        done = bare_host.run([SYSTEM_PYTHON, "-m", "venv", "/tmp/venv"], check=False)
        assert done.returncode != 0
        assert b"ensurepip is not\navailable" in done.stdout
        bare_host.run([SYSTEM_PYTHON, "-m", "venv", "--clear", "--without-pip", "/tmp/venv"])
        bare_host.run(["/tmp/venv/bin/python", "-c", "import json, ssl, sqlite3"])
        bare_host.run(["rm", "-r", "/tmp/venv"])

    def test_the_checkout_and_the_package_directories_are_not_there(self, bare_host: Host) -> None:
        assert bare_host.run(["test", "-e", str(_CHECKOUT)], check=False).returncode == 1
        assert bare_host.run(["ls", "-A", "/root"]).stdout.split() in ([b".ssh"], [b".pyenv", b".ssh"])
        expected = [b"train"] if Path(sys.prefix) != Path(sys.base_prefix) else []
        assert bare_host.run(["ls", "-A", "/opt"]).stdout.split() == expected

    def test_the_other_hosts_see_what_this_machine_has(self, lab3: Lab) -> None:
        # Not the checkout itself: it may lie under /tmp, of which each host has its own.
        lab3["gpu1"].run(["test", "-e", sys.base_prefix])

    @pytest.mark.torch
    @pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch: pip install -e '.[torch]'")
    @pytest.mark.parametrize("name", ["gpu1", "gpu3"])
    def test_the_users_own_interpreter_has_torch_and_cannot_be_changed(self, lab3: Lab, name: str) -> None:
        host = lab3[name]
        show = "import sys, torch; print(sys.prefix, torch.ones(2).sum().item())"
        assert host.run([USER_PYTHON, "-c", show], timeout=60).stdout.split() == [USER_PREFIX.encode(), b"2.0"]
        with pytest.raises(HostCommandError, match="Read-only file system"):
            host.run(["touch", f"{USER_PREFIX}/mark"])
