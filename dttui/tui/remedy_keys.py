"""Remedies name commands; where a person is on the screen, they name the keys that do the same there. Pure."""

from __future__ import annotations

import re
from itertools import pairwise

from dttui.i18n import N_, _

_KEYS = {
    "agents deploy": ("d", N_("deploy")),
    "agents upgrade": ("u", N_("upgrade")),
    "agents remove": ("x", N_("remove agent")),
    "agents status": ("r", N_("look again")),
    "envs trust": ("t", N_("trust")),
    "envs list": ("r", N_("look again")),
    "doctor": ("c", N_("doctor")),
}
"""Commands about hosts, and the keys of the screen of hosts that do the same."""
_TAKEN_ALONG = ("--fingerprint", "--inventory")
"""Options that the screen gives by itself; with any other a command does what no key does."""
_WORD = r" (?!·)[^\s`,;，；。]*[^\s`,;，；。.]"
_COMMAND = re.compile(rf"(`?)dttui ({'|'.join(_KEYS)})((?:{_WORD})*?)(\1)(?=$|\.(?:\s|$)|[,;，；。]| ·|(?<=`))")
"""In quotes, or up to where the sentence ends: what it is, and its words."""


_SENTENCES = {
    N_("Stop them first, or let --force stop them."): N_("Stop them first: j lists the jobs."),
    N_("Upgrade dttui on this login node, or insist with --yes."): N_("Upgrade dttui on this login node."),
    N_("Ask the host's owner for the fingerprint, and give it with --fingerprint."): N_(
        "Ask the host's owner for the fingerprint; t shows it again."
    ),
}
"""What is said of options, and what there is on the screen of hosts instead."""


def with_keys(text: str, *, on_hosts: bool = False) -> str:
    """Return a remedy with the keys of its commands, where the screen of hosts has any.

    Args:
        text: as the command line says it: "Install it: dttui agents deploy gpu1".
        on_hosts: whether that screen says it; on others it is a key away.
    """

    def told(found: re.Match[str]) -> str:
        options = {word for word in found[3].split() if word.startswith("-")}
        if options.difference(_TAKEN_ALONG):
            return found[0]
        key, name = _KEYS[found[2]]
        hosts = _hosts(found[3].split())
        told = _("h, then {key} ({name}) on {hosts}") if hosts else _("h, then {key} ({name})")
        if on_hosts:
            told = _("{key} ({name})")
        return told.format(key=key, name=_(name), hosts=" ".join(hosts))

    for said, instead in _SENTENCES.items() if on_hosts else ():
        text = text.replace(_(said), _(instead))
    return _COMMAND.sub(told, text)


def _hosts(words: list[str]) -> list[str]:
    """Return the words of a command that are neither options nor their values."""
    return [word for before, word in pairwise(["", *words]) if not word.startswith("-") and not before.startswith("-")]
