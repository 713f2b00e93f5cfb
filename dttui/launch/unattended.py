"""Whether a job goes on without a person after a restart of this login node, and what keeps it from that."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dttui.errors import HostError
from dttui.i18n import _
from dttui.inventory.models import Environment, Reach
from dttui.launch.boot import is_brought_back
from dttui.launch.secrets_file import read_secrets
from dttui.planning.models import Finding
from dttui.spec.findings import info, warning
from dttui.words import listed

MAX_NAMES = 5
LOOK_S = 2.0
"""How long is looked at keys: where each host has options of its own, ssh is asked for each."""
CODE = "unattended"


def unattended_findings(environments: Sequence[Environment], secrets: Sequence[str], base: Path) -> Iterator[Finding]:
    """Yield what a job would wait for. Blocking; asks no host.

    Args:
        environments: its hosts, spares among them.
        secrets: names of its secret variables.
        base: directory of the job file.
    """
    elsewhere = [item for item in environments if item.reach is not Reach.LOCAL]
    if not elsewhere:
        return  # Its ranks end with this machine too.
    from dttui.transport.ssh.credentials import Credentials, LoginNeed  # With paramiko, which reads keys.

    found: dict[tuple[LoginNeed, Path | None], list[str]] = {}
    credentials = Credentials()
    until = time.monotonic() + LOOK_S
    for environment in elsewhere:
        if time.monotonic() > until:
            break  # Of the others the same is to be expected.
        with contextlib.suppress(HostError, OSError):  # Told where it is connected to.
            login = credentials.login_to(environment)
            found.setdefault((login.need, login.key), []).append(environment.name)
    whys = {
        LoginNeed.AGENT: _("its ssh-agent, which holds {key}, ends with it"),
        LoginNeed.FORWARDED_AGENT: _("the ssh-agent, which holds {key}, is forwarded and goes with your session"),
        LoginNeed.PASSPHRASE: _("the key {key} has a passphrase"),
        LoginNeed.PERSON: _("a password is asked for"),
    }
    for (need, key), names in found.items():
        if need in whys:
            why = whys[need].format(key=key or _("a key"))
            message = _("after a restart of this login node {hosts} cannot be reached without you: {why}")
            hint = _("Name a key without a passphrase (identity_file), or call `dttui attach` once after a restart.")
            yield warning(CODE, "login", message.format(hosts=listed(names, MAX_NAMES), why=why), hint)
    kept = read_secrets(base)
    loose = [name for name in secrets if name not in kept.values]
    if loose:
        message = _("after a restart of this login node the values of {names} are not known without you").format(
            names=", ".join(loose)
        )
        hint = _("Keep them in {path}, mode 0600, as NAME=value; or call `dttui attach` once after a restart.")
        yield warning(CODE, "run.secrets", message, hint.format(path=kept.path), path=("run", "secrets"))
    if not is_brought_back():
        message = _("after a restart of this login node nobody follows the job until you call dttui")
        hint = _("`dttui doctor` has the line that has it brought back by itself.")
        yield info("unattended-boot", "login", message, hint)
