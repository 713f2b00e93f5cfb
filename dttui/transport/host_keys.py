"""Decides whether a host is the one it claims to be: known, unknown and confirmed, or refused. Makes no connection."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from dttui import locations
from dttui.errors import HostKeyError
from dttui.i18n import _
from dttui.inventory.models import Environment
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.known_hosts import DEFAULT_PORT, HostKey, KnownHostsCache, KnownKey, append
from dttui.transport.questions import Questions
from dttui.transport.ssh_config import Target, UnknownKeyPolicy
from dttui.transport.threads import Threads


class Verdict(Enum):
    """What the known_hosts files say about a key."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    """The host is in none of the files."""
    CHANGED = "changed"
    """The host is known by another key, of whatever type."""
    REVOKED = "revoked"


@dataclass(frozen=True)
class Hop:
    """One server on the way to an environment, the last one being the environment itself."""

    environment: Environment
    target: Target
    jump: bool = False

    @property
    def title(self) -> str:
        """What a person knows it by."""
        return self.target.name if self.jump else self.environment.name

    @property
    def writable_file(self) -> Path:
        """Where a confirmed key goes: never a file of the user's own."""
        named = self.environment.known_hosts
        return Path(named).expanduser() if named and not self.jump else locations.known_hosts_file()

    @property
    def files(self) -> tuple[Path, ...]:
        """Where its key is looked up. The inventory's file stands instead of the others, except for a jump host."""
        named = self.environment.known_hosts
        usual = (*self.target.known_hosts_files, locations.known_hosts_file())
        if not named:
            return usual
        return (Path(named).expanduser(), *usual) if self.jump else (Path(named).expanduser(),)


@dataclass(frozen=True)
class Entries:
    """What the files say about one host."""

    own: tuple[KnownKey, ...]
    """Under its own name and port."""
    usual_port: tuple[KnownKey, ...] = ()
    """Of the same host on port 22: as with ssh, they speak for the same key here, but not against another one."""

    @property
    def types(self) -> list[str]:
        """Types of the keys to expect."""
        return [entry.key.type for entry in self.own or self.usual_port if not entry.revoked]

    def judge(self, key: HostKey) -> tuple[Verdict, list[KnownKey]]:
        """Return the verdict on a key, and the entries that led to it."""
        matching = [entry for entry in (*self.own, *self.usual_port) if entry.key == key]
        revoked = [entry for entry in matching if entry.revoked]
        if revoked:
            return Verdict.REVOKED, revoked
        if matching:
            return Verdict.KNOWN, matching
        others = [entry for entry in self.own if not entry.revoked]
        return (Verdict.CHANGED, others) if others else (Verdict.UNKNOWN, [])


@dataclass
class HostKeyCheck:
    """Checks keys against files, and asks where they say nothing."""

    threads: Threads
    cache: KnownHostsCache = field(default_factory=KnownHostsCache)

    @property
    def warnings(self) -> list[str]:
        """Lines of all files read so far that could not be used."""
        return self.cache.warnings

    def known(self, hop: Hop) -> Entries:
        """Return what the files say about a host now. Blocking."""
        known = self.cache.load(hop.files)
        own = tuple(known.find(hop.target.known_as))
        if hop.target.port == DEFAULT_PORT or hop.target.host_key_alias:
            return Entries(own)
        return Entries(own, tuple(known.find(hop.target.hostname)))

    def vouched_for(self, hop: Hop, key: HostKey, known: Entries | None = None) -> bool:
        """Whether the key is a known one. Blocking, unless told what is `known`.

        Raises:
            HostKeyError: It is known to be wrong.
        """
        verdict, entries = (known or self.known(hop)).judge(key)
        if verdict is Verdict.REVOKED:
            raise _revoked(hop, key, entries)
        if verdict is Verdict.CHANGED:
            raise _changed(hop, key, entries)
        return verdict is Verdict.KNOWN

    async def confirm(self, hop: Hop, key: HostKey, questions: Questions) -> None:
        """Return if a key that nothing vouches for is to be taken; it is a known one then.

        Raises:
            HostKeyError: Nobody confirmed it, or it has changed or been revoked meanwhile.
        """
        policy = hop.target.unknown_key_policy
        if policy is UnknownKeyPolicy.ACCEPT:
            await self.trust(hop, key)
        elif policy is UnknownKeyPolicy.REFUSE or not await self._confirmed(hop, key, questions):
            raise _unknown(hop, key)

    async def trust(self, hop: Hop, key: HostKey) -> None:
        """Enter the key as the host's, unless it is known.

        Raises:
            HostKeyError: It has changed or is revoked, or the file cannot be written.
        """
        if await self.threads.connecting(self.vouched_for, hop, key):
            return
        path = hop.writable_file
        try:
            await self.threads.connecting(append, path, hop.target.known_as, key)
        except OSError as error:
            raise HostKeyError(
                hop.environment.name,
                _("the key of {host} cannot be saved in {path}: {error}").format(
                    host=hop.title, path=path, error=error.strerror or error
                ),
                fingerprint=key.fingerprint,
            ) from error

    async def _confirmed(self, hop: Hop, key: HostKey, questions: Questions) -> bool:
        """Whether a person says yes; the key is a known one then."""
        text = _(
            "{name} ({hostname} port {port}) shows a key that is not known yet: {algorithm} {fingerprint}. Take it?"
        )
        prompt = Prompt(
            PromptKind.HOST_KEY,
            hop.title,
            text.format(
                name=hop.title,
                hostname=hop.target.hostname,
                port=hop.target.port,
                algorithm=key.algorithm,
                fingerprint=key.fingerprint,
            ),
            secret=False,
            fingerprint=key.fingerprint,
            user=hop.target.user,
        )
        with questions.deadline.paused():
            async with questions.turn:
                # While this one waited for its turn, the same question may have been answered.
                if (await self.threads.connecting(self.known, hop)).judge(key)[0] is Verdict.KNOWN:
                    return True
                answer = await questions.ask_in_turn(prompt)
                if answer is None or answer.strip() not in {"yes", key.fingerprint}:
                    return False
                await self.trust(hop, key)
                return True


def _unknown(hop: Hop, key: HostKey) -> HostKeyError:
    message = _("the key of {host} is not known: {algorithm} {fingerprint}")
    if hop.jump:
        hint = _("Connect to it once with `ssh {jump}`, or run dttui in a terminal, and confirm the fingerprint there.")
        hint = hint.format(jump=shlex.quote(hop.target.name))
    else:
        hint = _(
            "If this is the fingerprint its administrator gives, run `dttui envs trust {key} --fingerprint {value}`."
        )
        hint = hint.format(key=shlex.quote(hop.environment.name), value=key.fingerprint)
    return HostKeyError(
        hop.environment.name,
        message.format(host=hop.title, algorithm=key.algorithm, fingerprint=key.fingerprint),
        hint,
        fingerprint=key.fingerprint,
    )


def _changed(hop: Hop, key: HostKey, entries: Sequence[KnownKey]) -> HostKeyError:
    known = ", ".join(f"{entry.key.algorithm} {entry.key.fingerprint} ({entry.place})" for entry in entries)
    message = _("the key of {host} has changed: it shows {algorithm} {fingerprint}, known is {known}")
    hint = _(
        "Someone may be in the way, or the host was set up anew. Ask its administrator; if the new key is right, "
        "remove the old line, or run `ssh-keygen -R {name} -f {path}`."
    )
    return HostKeyError(
        hop.environment.name,
        message.format(host=hop.title, algorithm=key.algorithm, fingerprint=key.fingerprint, known=known),
        hint.format(name=shlex.quote(hop.target.known_as), path=shlex.quote(str(entries[0].path))),
        fingerprint=key.fingerprint,
    )


def _revoked(hop: Hop, key: HostKey, entries: Sequence[KnownKey]) -> HostKeyError:
    message = _("the key of {host} is revoked by {place}: {algorithm} {fingerprint}")
    return HostKeyError(
        hop.environment.name,
        message.format(host=hop.title, place=entries[0].place, algorithm=key.algorithm, fingerprint=key.fingerprint),
        _("Do not connect. Ask the host's administrator for a new host key."),
        fingerprint=key.fingerprint,
    )
