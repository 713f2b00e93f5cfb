"""Decides whether a host is the one it claims to be: known, unknown and confirmed, or refused. Makes no connection."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from dttui.errors import HostKeyError
from dttui.i18n import _
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.ssh import certificates, revocation
from dttui.transport.ssh.algorithms import CERTIFICATE, plain_type
from dttui.transport.ssh.certificates import authority_of
from dttui.transport.ssh.hop import Hop
from dttui.transport.ssh.known_hosts import DEFAULT_PORT, HostKey, KnownHostsCache, KnownKey, append, entry_name
from dttui.transport.ssh.questions import Questions
from dttui.transport.ssh.ssh_config import UnknownKeyPolicy
from dttui.transport.ssh.threads import Threads


class Verdict(Enum):
    """What the known_hosts files say about a key."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    """The host is in none of the files."""
    CHANGED = "changed"
    """The host is known by another key, of whatever type."""
    REVOKED = "revoked"


@dataclass(frozen=True)
class Entries:
    """What the files say about one host."""

    own: tuple[KnownKey, ...]
    """Under its own name and port."""
    usual_port: tuple[KnownKey, ...] = ()
    """Of the same host on port 22: as with ssh, they vouch for a key here where nothing is known of this port."""
    authorities: tuple[KnownKey, ...] = ()
    """Who may vouch for the host by a certificate."""
    usual_port_authorities: tuple[KnownKey, ...] = ()
    """Who may do so where there is nobody for this port."""

    @property
    def types(self) -> list[str]:
        """Types of the keys to expect. ssh too does not look at those of the usual port for that."""
        return [entry.key.type for entry in self.own if not entry.revoked]

    @property
    def revoked(self) -> list[KnownKey]:
        """Lines that revoke a key, be it a host's or an authority's."""
        return [entry for entry in (*self.own, *self.usual_port) if entry.revoked]

    def authority(self, key: HostKey) -> KnownKey | None:
        """Return the trusted one that has signed a key's certificate."""
        signer = authority_of(key) if key.certificate else b""
        trusted = self.authorities or self.usual_port_authorities
        return next((entry for entry in trusted if entry.key.blob == signer), None)

    def judge(self, key: HostKey) -> tuple[Verdict, list[KnownKey]]:
        """Return the verdict on a key, whoever else vouches for it, and the entries that led to it."""
        blobs = (key.blob, authority_of(key)) if key.certificate else (key.blob,)
        revoked = [entry for entry in self.revoked if entry.key.blob in blobs]
        if revoked:
            return Verdict.REVOKED, revoked
        own = [entry for entry in self.own if not entry.revoked]
        matching = [entry for entry in (own or self.usual_port) if entry.key == key]
        if matching:
            return Verdict.KNOWN, matching
        return (Verdict.CHANGED, own) if own else (Verdict.UNKNOWN, [])


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
        name = hop.target.looked_up_as
        own, authorities = tuple(known.find(name)), tuple(known.find_authorities(name))
        if hop.target.port == DEFAULT_PORT or hop.target.host_key_alias:
            return Entries(own, authorities=authorities)
        usual = hop.target.hostname.lower()
        return Entries(own, tuple(known.find(usual)), authorities, tuple(known.find_authorities(usual)))

    def vouched_for(
        self, hop: Hop, key: HostKey, known: Entries | None = None, *, address: str = "", offered: Sequence[str] = ()
    ) -> bool:
        """Whether the key is a known one. Blocking.

        Args:
            hop: the host.
            key: what it shows.
            known: what is known of it, if that is at hand.
            address: IP address that was connected to, where this machine did so itself.
            offered: algorithms of all keys and certificates that the host has.

        Raises:
            HostKeyError: It is known to be wrong, or what ssh would look at cannot be checked here.
        """
        known = known or self.known(hop)
        revocation.check(hop, key)
        _check_same_key(hop, key, known, offered)
        verdict, entries = known.judge(key)
        if verdict is Verdict.REVOKED:
            raise _revoked(hop, key, entries)
        if known.authority(key) is not None and not _fault(hop, key):
            return True
        if verdict is Verdict.CHANGED:
            raise _changed(hop, key, entries, _unfollowed(hop, key, known))
        if address and hop.target.checks_address:
            self._check_address(hop, key, address)
        return verdict is Verdict.KNOWN

    def _check_address(self, hop: Hop, key: HostKey, address: str) -> None:
        """What CheckHostIP is: as with ssh, not for this machine, and not where the name is an address already."""
        if ipaddress.ip_address(address).is_loopback or hop.target.hostname == address:
            return
        of_address = tuple(self.cache.load(hop.files).find(entry_name(address, hop.target.port)))
        verdict, entries = Entries(of_address).judge(key)
        if verdict in (Verdict.CHANGED, Verdict.REVOKED):
            raise _contradicted(hop, key, entries)

    async def confirm(self, hop: Hop, key: HostKey, questions: Questions) -> None:
        """Return if a key that nothing vouches for is to be taken; it is a known one then.

        Raises:
            HostKeyError: Nobody confirmed it, or it has changed or been revoked meanwhile.
        """
        policy = hop.target.unknown_key_policy
        if policy is UnknownKeyPolicy.ACCEPT:
            await self.trust(hop, key)
        elif policy is UnknownKeyPolicy.REFUSE or not await self._confirmed(hop, key, questions):
            known = await self.threads.connecting(self.known, hop)
            raise _unknown(hop, key, _unfollowed(hop, key, known))

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


def _unfollowed(hop: Hop, key: HostKey, known: Entries) -> str:
    """What might let ssh go on where dttui does not, to be added to a message; and why a certificate does not help."""
    reasons = list(hop.target.not_followed)
    if not hop.target.algorithms.prefers_known:
        reasons.append("HostKeyAlgorithms")
    told = _("; what ssh may take by {options}, dttui does not").format(options=", ".join(reasons)) if reasons else ""
    if authorities := known.authorities or known.usual_port_authorities:
        signer = known.authority(key)
        fault = _fault(hop, key) if signer else _("it is not signed by that authority") if key.certificate else ""
        place = f"@cert-authority {(signer or authorities[0]).place}"
        missing = _("; {place} is for certificates, and it shows none")
        refused = _("; its certificate is not taken by {place}: {fault}")
        told += refused.format(place=place, fault=fault) if fault else missing.format(place=place)
    return told


def _fault(hop: Hop, key: HostKey) -> str:
    """Why a certificate that a trusted authority has signed does not vouch for the host; `""` where it does."""
    name = hop.target.host_key_alias or hop.target.hostname.lower()
    return certificates.fault(key, name, hop.target.algorithms.authority_signatures)


def _check_same_key(hop: Hop, key: HostKey, known: Entries, offered: Sequence[str]) -> None:
    """Return if ssh would look at that key too, and in a certificate or without one alike, where that can matter."""
    target = hop.target
    matters = bool(known.authorities or known.usual_port_authorities or known.revoked or target.revoked_host_keys)
    picks = target.algorithms.picks_of_ssh(offered, known.types, has_authority=bool(known.authorities))
    if all(
        plain_type(name) == key.type and (not matters or (CERTIFICATE in name) is bool(key.certificate))
        for name in picks
    ):
        return
    message = _("ssh looks at another key of {host} than dttui, by HostKeyAlgorithms")
    hint = _("Set `HostKeyAlgorithms` for it to one type, which dttui has too.")
    raise HostKeyError(hop.environment.name, message.format(host=hop.title), hint, fingerprint=key.fingerprint)


def _contradicted(hop: Hop, key: HostKey, entries: Sequence[KnownKey]) -> HostKeyError:
    message = _("the key of {host} is not the one known for its address, and CheckHostIP is on: {place}")
    return HostKeyError(
        hop.environment.name,
        message.format(host=hop.title, place=entries[0].place),
        _("Ask the host's administrator which is right; then remove the other line."),
        fingerprint=key.fingerprint,
    )


def _unknown(hop: Hop, key: HostKey, unfollowed: str) -> HostKeyError:
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
        message.format(host=hop.title, algorithm=key.algorithm, fingerprint=key.fingerprint) + unfollowed,
        hint,
        fingerprint=key.fingerprint,
    )


def _changed(hop: Hop, key: HostKey, entries: Sequence[KnownKey], unfollowed: str) -> HostKeyError:
    known = ", ".join(f"{entry.key.algorithm} {entry.key.fingerprint} ({entry.place})" for entry in entries)
    message = _("the key of {host} has changed: it shows {algorithm} {fingerprint}, known is {known}")
    hint = _(
        "Someone may be in the way, or the host was set up anew. Ask its administrator; if the new key is right, "
        "remove the old line, or run `ssh-keygen -R {name} -f {path}`."
    )
    return HostKeyError(
        hop.environment.name,
        message.format(host=hop.title, algorithm=key.algorithm, fingerprint=key.fingerprint, known=known) + unfollowed,
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
