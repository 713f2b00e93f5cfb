"""Taking a host's key on a person's word: by a fingerprint they were told, or by confirming the one shown."""

from __future__ import annotations

import re

from dttui.errors import HostKeyError, UsageError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.spec.problems import printable
from dttui.transport.base import CONNECT_TIMEOUT_S, Prompt, Prompter, PromptKind
from dttui.transport.routes import Transports

_FINGERPRINT = re.compile(r"(?:SHA256:)?[A-Za-z0-9+/]{43}=?")


async def trust_host(
    environment: Environment,
    transports: Transports,
    prompter: Prompter,
    fingerprint: str | None,
    *,
    dry_run: bool = False,
) -> str:
    """Fetch the key a host shows and write it down if it is the right one; return its fingerprint.

    Args:
        environment: the host.
        transports: the way to it.
        prompter: who confirms where no fingerprint is given.
        fingerprint: the one the person was told, `SHA256:…`.
        dry_run: ask nobody, and write nothing down.

    Raises:
        UsageError: what was given is no fingerprint.
        HostKeyError: it is another key than is known or was given, is revoked, or nobody confirmed it.
        HostUnreachableError: the host did not answer.
    """
    if fingerprint is not None and not _FINGERPRINT.fullmatch(fingerprint):
        raise UsageError(
            _("{fingerprint} is no fingerprint of a key").format(fingerprint=printable(fingerprint)),
            _("It is SHA256: and 43 letters, as `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` says on the host."),
        )
    key = await transports.fetch_host_key(environment, CONNECT_TIMEOUT_S)
    # Before anybody is asked: of a key that has changed a person must not read that it is merely new.
    is_known = await transports.vouched_for(environment, key)
    if fingerprint is None and (is_known or dry_run):
        confirmed = True
    elif fingerprint is None:
        text = _("Trust this key?")
        user = environment.user or await transports.user_on(environment)
        prompt = Prompt(PromptKind.HOST_KEY, environment.name, text, False, key.fingerprint, user)
        confirmed = await prompter.ask(prompt) == "yes"
    else:
        confirmed = fingerprint.removeprefix("SHA256:").rstrip("=") == key.fingerprint.removeprefix("SHA256:")
    if confirmed:
        if not dry_run:
            await transports.trust(environment, key)
        return key.fingerprint
    message = _("{host}: the host shows the key {fingerprint}, which was not confirmed")
    hint = _("Ask the host's owner for the fingerprint, and give it with --fingerprint.")
    if fingerprint is not None:
        message = _("{host}: the host shows the key {fingerprint}, which is not the one given; nothing was trusted")
        hint = _(
            "A host has several keys: ask its owner whether this is one of them. If not, another machine answers "
            "in its place."
        )
    raise HostKeyError(
        environment.name,
        message.format(host=environment.name, fingerprint=key.fingerprint),
        hint,
        fingerprint=key.fingerprint,
    )
