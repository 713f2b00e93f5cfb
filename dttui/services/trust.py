"""Taking a host's key on a person's word: by a fingerprint they were told, or by confirming the one shown."""

from __future__ import annotations

from dttui.errors import HostKeyError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.transport.base import CONNECT_TIMEOUT_S, Prompt, Prompter, PromptKind
from dttui.transport.routes import Transports


async def trust_host(
    environment: Environment, transports: Transports, prompter: Prompter, fingerprint: str | None
) -> str:
    """Fetch the key a host shows and write it down if it is the right one; return its fingerprint.

    Args:
        environment: the host.
        transports: the way to it.
        prompter: who confirms where no fingerprint is given.
        fingerprint: the one the person was told, `SHA256:…`.

    Raises:
        HostKeyError: it is another key, or nobody confirmed it.
        HostUnreachableError: the host did not answer.
    """
    key = await transports.fetch_host_key(environment, CONNECT_TIMEOUT_S)
    if fingerprint is None:
        text = _("Trust this key?")
        prompt = Prompt(PromptKind.HOST_KEY, environment.name, text, secret=False, fingerprint=key.fingerprint)
        confirmed = await prompter.ask(prompt) == "yes"
    else:
        confirmed = fingerprint.removeprefix("SHA256:").rstrip("=") == key.fingerprint.removeprefix("SHA256:")
    if not confirmed:
        raise HostKeyError(
            environment.name,
            _("{host}: the host shows the key {fingerprint}, which was not confirmed").format(
                host=environment.name, fingerprint=key.fingerprint
            ),
            _("Ask the host's owner for the fingerprint, and give it with --fingerprint."),
            fingerprint=key.fingerprint,
        )
    await transports.trust(environment, key)
    return key.fingerprint
