"""Whether a host is trusted, dttui and the real ssh beside each other: where dttui goes on, ssh does."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dttui import locations
from dttui.errors import HostError
from dttui.inventory.models import Environment
from dttui.transport.ssh.transport import SshTransport
from tests.hostile.host_key_cases import Case, Servers, make_cases, names_one_of
from tests.integration.ssh_fixtures import NOBODY, TIMEOUT_S
from tests.integration.sshd import free_port, make_key, run, running_sshd

pytestmark = pytest.mark.sshd

CASES = 320
PARTS = 4
SEED = int(os.environ.get("DTTUI_HOST_KEY_SEED", "13"))
KINDS = ("ed25519", "ecdsa", "rsa")
WORKERS = 4
OF_FILES = ("@cert-authority", "known0:", "known1:", "known2:", "known3:", "/of-", "no algorithm in common")
"""What else a refusal may name: the line of a file, or that the server has nothing that dttui has."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    base = tmp_path_factory.mktemp("servers")
    authority = make_key(base / "authority")
    directory = base / "host"
    directory.mkdir()
    for kind in KINDS:
        make_key(directory / f"host_{kind}", kind)
    other = make_key(base / "other", "ecdsa")
    third = make_key(base / "third", "rsa")
    certify(authority, directory / "host_ed25519.pub")
    # What ssh prefers takes ten times as long.
    quick = {"KexAlgorithms": "curve25519-sha256,ecdh-sha2-nistp256,diffie-hellman-group14-sha256"}
    variants: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
        "expired": (("ed25519", "rsa"), ("ed25519",), ("-V", "20200101:20210101")),
        "for another": (("ed25519", "ecdsa"), ("ed25519",), ("-n", "gpu9,cluster-node")),
        "for all": (("rsa", "ecdsa", "ed25519"), ("rsa", "ecdsa"), ("-n", "*")),
        "with a condition": (KINDS, ("ecdsa",), ("-O", "critical:nobody@knows=1")),
        "without ed25519": (("ecdsa", "rsa"), ("rsa",), ()),
        "by SHA-1": (KINDS, KINDS, ("-t", "ssh-rsa")),
        "by another": (KINDS, ("ed25519", "ecdsa"), ("-t", "rsa-sha2-256")),
        "of old": (("rsa",), (), ()),
    }
    with contextlib.ExitStack() as running:
        ports = [free_port()]
        options = {"Port": str(ports[0]), "HostCertificate": str(directory / "host_ed25519-cert.pub"), **quick}
        host = running.enter_context(running_sshd(directory, {**options, "ListenAddress": "::1"}, KINDS))
        for name, (kinds, certified, how) in variants.items():
            place = base / name.replace(" ", "-")
            place.mkdir()
            for kind in KINDS:
                for suffix in ("", ".pub"):
                    shutil.copy(directory / f"host_{kind}{suffix}", place)
            for file in ("client", "client.pub", "authorized_keys"):
                shutil.copy(directory / file, place)
            for kind in certified:
                signer = third if "-t" in how else other if name == "for all" else authority
                certify(signer, place / f"host_{kind}.pub", *how)
            options = quick | {"ListenAddress": "::1"}
            if certified:
                options["HostCertificate"] = "\nHostCertificate ".join(
                    str(place / f"host_{kind}-cert.pub") for kind in certified
                )
            ports.append(running.enter_context(running_sshd(place, options, kinds)).port)
        gateway = running.enter_context(running_sshd(base / "gateway", quick, KINDS))
        gateway.authorize(host.client_key.with_suffix(".pub"))
        krl = base / "krl"
        run("ssh-keygen", "-q", "-k", "-f", str(krl), str(host.host_key("ecdsa")), str(gateway.host_key("ed25519")))
        authorities = tuple(key.with_suffix(".pub") for key in (authority, other, third))
        yield Servers(host, tuple(ports), gateway, authorities, krl)


def certify(authority: Path, key: Path, *how: str) -> None:
    """Make a certificate of a host's key, beside it."""
    names = () if "-n" in how else ("-n", "127.0.0.1,localhost,Cluster-Node")
    run("ssh-keygen", "-q", "-s", str(authority), "-I", "host", "-h", *names, *how, str(key))


async def dttui_says(config: Path, case: Case) -> str:
    """`""` where dttui logs in, else why it does not."""
    transport = SshTransport(config)
    fields = {key: str(value).replace("@PLACE@", str(config.parent)) for key, value in case.inventory.items()}
    environment = Environment.model_validate({"name": "node", "host": "node", **fields})
    try:
        connection = await transport.connect(environment, NOBODY, TIMEOUT_S)
        await connection.close()
        return ""
    except HostError as error:
        return f"{error.message} ({error.hint})"
    finally:
        await transport.close()
        locations.known_hosts_file().unlink(missing_ok=True)


def ssh_says(config: Path, case: Case) -> str:
    """The same of ssh."""
    command = ["ssh", "-F", str(config), "-T"]
    if "port" in case.inventory:
        command += ["-p", str(case.inventory["port"])]
    if "known_hosts" in case.inventory:  # Which stands instead of the others.
        file = str(case.inventory["known_hosts"]).replace("@PLACE@", str(config.parent))
        command += ["-o", f"UserKnownHostsFile={file}", "-o", "GlobalKnownHostsFile=none"]
    command += ["node", "exit"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    return "" if done.returncode == 0 else done.stderr or "no word"


@pytest.mark.parametrize("part", range(PARTS))
async def test_wherever_dttui_goes_on_ssh_does_and_where_only_ssh_does_the_option_is_named(
    servers: Servers, tmp_path: Path, part: int
) -> None:
    """Where dttui refuses and names it, both would be right, and ssh is not asked."""
    cases = make_cases(servers, CASES, SEED)[part::PARTS]
    too_far: list[str] = []
    silent: list[str] = []
    asked: list[tuple[Case, str, Future[str]]] = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for case in cases:
            ours = await dttui_says(case.write(_made(tmp_path / "dttui"), servers), case)
            if not ours or not names_one_of(ours, (*case.options, *OF_FILES)):
                # Files of its own: ssh writes into them.
                config = case.write(_made(tmp_path / "ssh"), servers)
                asked.append((case, ours, pool.submit(ssh_says, config, case)))
    for case, ours, answer in asked:
        if not ours and (refusal := answer.result()):
            too_far.append(_told(case, "dttui goes on", refusal))
        elif ours and not answer.result():
            silent.append(_told(case, "ssh goes on", ours))
    assert not too_far, f"{len(too_far)} of {len(cases)} cases\n" + "\n".join(too_far[:20])
    assert not silent, f"{len(silent)} of {len(cases)} cases\n" + "\n".join(silent[:20])
    assert sum(not ours for _case, ours, _answer in asked) > len(cases) // 16


def _made(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    return directory


def _told(case: Case, what: str, why: str) -> str:
    known = [line[:60] for lines in case.known for line in lines]
    return f"case {case.number}: {what}; {case.host_lines} {case.all_lines} {known}\n    {why.strip()[:300]}"
