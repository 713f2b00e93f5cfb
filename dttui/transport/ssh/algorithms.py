"""Which algorithms a connection may use: dttui's own, as far as the person's ssh configuration allows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dttui.transport.ssh.known_hosts import matches

# Preferences, best first; what the installed paramiko lacks is left out, and what is not listed is never used: no CBC,
# no 3DES, no MD5, no SHA-1. Curve25519 costs a tenth of group exchange.
KEX = (
    "curve25519-sha256@libssh.org",
    "curve25519-sha256",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
    "mlkem768x25519-sha256",
    "diffie-hellman-group16-sha512",
    "diffie-hellman-group14-sha256",
    "diffie-hellman-group-exchange-sha256",
)
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes192-ctr", "aes256-ctr")
MACS = ("hmac-sha2-256-etm@openssh.com", "hmac-sha2-512-etm@openssh.com", "hmac-sha2-256", "hmac-sha2-512")
RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
SIGNATURES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", *RSA_SIGNATURES)
CERTIFICATE = "-cert-v01@openssh.com"
PUBLIC_KEYS = (*(f"{name}{CERTIFICATE}" for name in SIGNATURES), *SIGNATURES)
OPTIONS = {
    "kexalgorithms": "KexAlgorithms",
    "ciphers": "Ciphers",
    "macs": "MACs",
    "hostkeyalgorithms": "HostKeyAlgorithms",
    "pubkeyacceptedalgorithms": "PubkeyAcceptedAlgorithms",
}


@dataclass(frozen=True)
class Algorithms:
    """What may be used, best first. Where a list is empty, the configuration allows nothing that dttui has."""

    kex: tuple[str, ...] = KEX
    ciphers: tuple[str, ...] = CIPHERS
    macs: tuple[str, ...] = MACS
    host_keys: tuple[str, ...] = PUBLIC_KEYS
    public_keys: tuple[str, ...] = PUBLIC_KEYS
    prefers_known: bool = True
    """Whether types of keys that are known for the host go first; ssh does not do so in a list that is written out."""
    host_keys_of_ssh: tuple[str, ...] = ()
    """All that ssh takes, in its order; empty where there is no ssh."""
    authority_signatures: tuple[str, ...] = SIGNATURES
    """By which an authority may vouch for a host."""

    @classmethod
    def read(cls, options: Mapping[str, Sequence[str]], defaults: Mapping[str, Sequence[str]]) -> Algorithms:
        """Take the lists from what `ssh -G` says of a host, and of one that nothing is configured for."""

        def chosen(keyword: str, ours: tuple[str, ...]) -> tuple[str, ...]:
            value = _first(options, keyword)
            return ours if value in ("", _first(defaults, keyword)) else _allowed(value, ours)

        host_keys, usual = _first(options, "hostkeyalgorithms"), _first(defaults, "hostkeyalgorithms")
        ciphers, macs = chosen("ciphers", CIPHERS), chosen("macs", MACS)
        if not macs:  # These have their own; for the others there is none left.
            ciphers = tuple(name for name in ciphers if "gcm" in name)
            macs = MACS if ciphers else ()
        return cls(
            kex=chosen("kexalgorithms", KEX),
            ciphers=ciphers,
            macs=macs,
            host_keys=chosen("hostkeyalgorithms", PUBLIC_KEYS),
            public_keys=chosen("pubkeyacceptedalgorithms", PUBLIC_KEYS),
            # What ssh appended to its usual list still begins with it. Of a list without something of the usual one
            # nobody can tell whether it was written out.
            prefers_known=not host_keys or host_keys.startswith((usual or "+", "+")),
            host_keys_of_ssh=tuple(host_keys.split(",")) if usual else (),
            authority_signatures=chosen("casignaturealgorithms", SIGNATURES),
        )

    def host_key_order(self, known: Sequence[str], *, has_authority: bool) -> list[str]:
        """Return the algorithms to ask a host for, best first.

        Args:
            known: types of keys that are known for it.
            has_authority: whether an authority may vouch for it.
        """
        return _ordered(self.host_keys, known, has_authority) if self.prefers_known else list(self.host_keys)

    def picks_of_ssh(self, offered: Sequence[str], known: Sequence[str], *, has_authority: bool) -> set[str]:
        """Return which algorithms ssh may agree on with a host; nothing where that is not known.

        Args:
            offered: the algorithms that the host has keys and certificates for.
            known: types of keys that are known for it.
            has_authority: whether an authority may vouch for it.
        """
        orders = [_ordered(self.host_keys_of_ssh, known, has_authority)]
        if not self.prefers_known:
            orders.append(list(self.host_keys_of_ssh))
        picked = (next((name for name in order if name in offered), "") for order in orders)
        return {name for name in picked if name}

    def missing(self) -> str:
        """Return the option that allows nothing that dttui has, `""` where there is none."""
        lists = {
            "kexalgorithms": self.kex,
            "macs": self.macs,
            "ciphers": self.ciphers,
            "hostkeyalgorithms": self.host_keys,
        }
        return next((OPTIONS[keyword] for keyword, names in lists.items() if not names), "")

    def may_sign_with(self, key_type: str) -> bool:
        """Whether a person's key of a type, or with a certificate of one, may be used to log in."""
        plain = key_type.removesuffix(CERTIFICATE)
        suffix = key_type[len(plain) :]
        names = RSA_SIGNATURES if plain in ("ssh-rsa", *RSA_SIGNATURES) else (plain,)
        usual = any(f"{name}{suffix}" in PUBLIC_KEYS for name in names)
        return not usual or any(f"{name}{suffix}" in self.public_keys for name in names)


def _ordered(algorithms: Sequence[str], known: Sequence[str], has_authority: bool) -> list[str]:
    """As ssh does: what is known first, where it is not what is best anyway."""
    if algorithms and plain_type(algorithms[0]) in known:
        return list(algorithms)

    def is_known(name: str) -> bool:
        return (has_authority and CERTIFICATE in name) or plain_type(name) in known

    return sorted(algorithms, key=lambda name: not is_known(name))


def plain_type(algorithm: str) -> str:
    """Return the type of the keys that an algorithm is for: `ssh-rsa` has several, each with one for certificates."""
    name = algorithm.removesuffix(CERTIFICATE)
    return "ssh-rsa" if name in RSA_SIGNATURES else name


def _first(options: Mapping[str, Sequence[str]], keyword: str) -> str:
    values = options.get(keyword)
    return values[0].strip() if values else ""


def _allowed(value: str, ours: tuple[str, ...]) -> tuple[str, ...]:
    """What a list of ssh's leaves of ours, in its order. `ssh -G` has worked out `+`, `-` and `^`; a file has not."""
    sign, patterns = (value[0], value[1:]) if value[0] in "+-^" else ("", value)
    named = [name for pattern in patterns.split(",") for name in ours if matches((pattern.strip(),), name)]
    if sign == "+":
        return ours
    if sign == "-":
        return tuple(name for name in ours if name not in named)
    return tuple(dict.fromkeys([*named, *ours] if sign == "^" else named))
