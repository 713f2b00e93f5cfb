"""Known hosts and ssh configurations at random, for a host and the jump host before it, and what makes them meet."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.sshd import USER, Sshd
from tests.integration.test_ssh_routes import RELAY

HEADINGS = (
    "Host node",
    "Host n?de !gate other",
    "Match originalhost node",
    'Match originalhost node exec "test %n = node"',
    "Match final originalhost node",
    "Include Host node",
    "Include Match originalhost n*",
)
FILES = (
    "@PLACE@/of-%h @PLACE@/known1",
    "@PLACE@/of-%n @PLACE@/known1",
    "@PLACE@/known1 @PLACE@/known0 @PLACE@/missing",
    "none",
)
KINDS = ("ed25519", "ecdsa", "rsa")
ODD_LINES = (
    "# a comment",
    "",
    "nonsense",
    "@strange * ssh-rsa AAAA",
    "@cert-authority *",
    "@cert-authority * ssh-ed25519 AAAA",
    "* ssh-ed25519",
    "\t \r",
    "* sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIGFh",
    "x" * 20_000 + " ssh-ed25519 AAAA",
    "* ssh-ed25519 " + "A" * 20_000,
)
ALIAS = "Cluster-Node"
TYPES = {"ed25519": "ssh-ed25519", "ecdsa": "ecdsa-sha2-nistp256", "rsa": "rsa-sha2-512"}


@dataclass
class Servers:
    """Where the cases lead, and the keys that lines are made of."""

    host: Sshd
    """With a key of each kind, and a certificate of the authority for the first; on two ports."""
    ports: tuple[int, ...]
    """The host's, and those on which it shows other certificates, or has no key of the first kind."""
    gateway: Sshd
    authorities: tuple[Path, ...]
    """The one that is right for the host's own ports, and others."""
    krl: Path
    """Revokes the host's ECDSA key, and the gateway's ED25519 key."""


@dataclass
class Case:
    """What one person has in their files."""

    number: int
    host_lines: list[str] = field(default_factory=list)
    """Of the configuration, for the host."""
    all_lines: list[str] = field(default_factory=list)
    """For every host."""
    known: list[list[str]] = field(default_factory=list)
    """Lines of the user's files and of the system's."""
    revoked: list[str] | None = None
    hostname: str = "127.0.0.1"
    heading: str = "Host node"
    """Under which the lines for the host stand, in a file that is included where it says so."""
    files: str = "@PLACE@/known0 @PLACE@/known1"
    """The user's, as the configuration names them."""
    inventory: dict[str, object] = field(default_factory=dict)
    """What the inventory says of the host."""

    @property
    def options(self) -> list[str]:
        """Names of what is set, but for what leads to the host."""
        names = [line.split()[0] for line in (*self.host_lines, *self.all_lines)]
        return [name for name in names if name not in ("Port", "HostKeyAlias", "ProxyJump")]

    def write(self, directory: Path, servers: Servers) -> Path:
        """Write the files; return the configuration's."""
        place = directory / str(self.number)
        place.mkdir()
        files = [place / f"known{index}" for index in range(4)]
        for path, lines in zip(files, self.known, strict=True):
            path.write_text("".join(f"{line}\n" for line in lines))
        for link in (self.hostname, self.hostname.lower(), "node"):
            if not (place / f"of-{link}").exists():
                (place / f"of-{link}").symlink_to(files[0])
        if self.revoked is not None:
            (place / "revoked").write_text("".join(f"{line}\n" for line in self.revoked))
        (place / "relay.py").write_text(RELAY)
        own = [self.heading.removeprefix("Include "), *self.host_lines]
        if self.heading.startswith("Include "):
            (place / "included").write_text("".join(f"{line}\n" for line in own).replace("@PLACE@", str(place)))
            own = ["Include @PLACE@/incl*"]
        lines = ["Host node", f"HostName {self.hostname}", *own, "Host gate", "HostName 127.0.0.1"]
        lines += [f"Port {servers.gateway.port}", "HostKeyAlias none-but-the-gate", "Host *", *self.all_lines]
        lines += [f"User {USER}", f"IdentityFile {servers.host.client_key}", "IdentitiesOnly yes", "BatchMode yes"]
        lines += [f"UserKnownHostsFile {self.files}", f"GlobalKnownHostsFile {files[2]} {files[3]}"]
        lines += ["UpdateHostKeys no", "LogLevel ERROR"]
        config = place / "config"
        config.write_text("".join(f"{line}\n" for line in lines).replace("@PLACE@", str(place)))
        return config


def make_cases(servers: Servers, count: int, seed: int) -> list[Case]:
    """Return so many cases, the same ones for a seed, but for ports and keys."""
    return [_make_case(servers, number, random.Random(f"{seed}/{number}")) for number in range(count)]


def _make_case(servers: Servers, number: int, draw: random.Random) -> Case:
    case = Case(number, known=[[], [], [], []])
    port = draw.choice([servers.host.port, *servers.ports])
    if draw.random() < 0.9:
        case.host_lines.append(f"Port {port}")
    else:
        case.inventory["port"] = port
        case.host_lines.append(draw.choice(["Port 1", "AddressFamily inet"]))
    hostname = draw.choices(["127.0.0.1", "LocalHost", "::1"], [8, 1, 1])[0]
    case.hostname = hostname
    alias = draw.random() < 0.15
    if alias:
        case.host_lines.append(f"HostKeyAlias {ALIAS}")
    name = ALIAS if alias else f"[{hostname.lower()}]:{port}"
    for _each in range(draw.choice([0, 1, 1, 1, 2, 2, 3])):
        draw.choice(case.known).append(_known_line(servers, name, port, draw))
    if draw.random() < 0.55:
        draw.choice(case.known).append(f"{_right_name(name, port, draw)} {_key(servers.host, draw.choice(KINDS))}")
    if draw.random() < 0.1:
        case.known[draw.randrange(4)].insert(0, draw.choice(ODD_LINES))
    for _each in range(draw.choice([0, 0, 1, 1, 1, 2])):
        line = _option(draw, draw.choice(KINDS))
        (case.host_lines if draw.random() < 0.7 else case.all_lines).append(line)
        if line.startswith("RevokedHostKeys @PLACE@"):
            case.revoked = [
                _key(draw.choice([servers.host, servers.gateway]), draw.choice(KINDS)),
                "# no key",
                "junk x",
            ]
        elif line == "RevokedHostKeys KRL":
            (case.host_lines if line in case.host_lines else case.all_lines)[-1] = f"RevokedHostKeys {servers.krl}"
    case.heading = draw.choice(HEADINGS)
    case.files = draw.choice([case.files, case.files, *FILES])
    if draw.random() < 0.1:
        case.inventory["known_hosts"] = "@PLACE@/known1"
    way = draw.random()
    if way < 0.1:
        case.host_lines.append(f"ProxyCommand {sys.executable} -S -E @PLACE@/relay.py %h %p")
    elif way < 0.3:
        case.host_lines.append(draw.choice(["ProxyJump gate", "ProxyJump gate", "ProxyJump gate,gate"]))
        if draw.random() < 0.8:
            case.known[0].append(f"none-but-the-gate {_key(servers.gateway, draw.choice(KINDS))}")
    return case


def _option(draw: random.Random, kind: str) -> str:
    type_, other = TYPES[kind], TYPES[draw.choice(KINDS)]
    return draw.choice(
        [
            f"StrictHostKeyChecking {draw.choice(['yes', 'no', 'off', 'accept-new', 'ask'])}",
            f"HostKeyAlgorithms {type_}",
            f"HostKeyAlgorithms {other},{type_}",
            f"HostKeyAlgorithms -{type_}",
            f"HostKeyAlgorithms ^{type_}",
            f"HostKeyAlgorithms {draw.choice(['ssh-*', '*ecdsa*', 'rsa-*', '+ssh-rsa', '-*ed25519*', '-*cert*'])}",
            f"HostKeyAlgorithms {type_}-cert-v01@openssh.com,{other}",
            "HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com",
            f"KexAlgorithms {draw.choice(['ecdh-sha2-nistp256', '-curve*', '^ecdh*', 'sntrup*', '+diffie*'])}",
            f"Ciphers {draw.choice(['aes256-ctr', '-aes*', 'chacha*', '^aes256-gcm*', 'aes*', '+aes128-cbc'])}",
            f"MACs {draw.choice(['hmac-sha2-256', 'hmac-sha1', 'umac*', '-hmac*', '^hmac-sha2-512', '*etm*'])}",
            f"PubkeyAcceptedAlgorithms {draw.choice(['ssh-ed25519', '-ssh-ed25519', 'rsa-*', '*cert*', '+ssh-rsa'])}",
            f"RequiredRSASize {draw.choice([1024, 2048, 3072, 4096])}",
            "RevokedHostKeys @PLACE@/revoked",
            "RevokedHostKeys @PLACE@/missing" if draw.random() < 0.3 else "RevokedHostKeys @PLACE@/revoked",
            "RevokedHostKeys KRL",
            f"CheckHostIP {draw.choice(['yes', 'no'])}",
            "NoHostAuthenticationForLocalhost yes",
            "VerifyHostKeyDNS no",
            "KnownHostsCommand /bin/true",
            f"PreferredAuthentications {draw.choice(['publickey', 'password', 'password,publickey'])}",
            "HashKnownHosts yes",
            f"CASignatureAlgorithms {draw.choice(['ssh-ed25519', '-ssh-ed25519', 'rsa-*', '^ecdsa*'])}",
        ]
    )


def _known_line(servers: Servers, name: str, port: int, draw: random.Random) -> str:
    marker = draw.choice(["", "", "", "@revoked ", "@cert-authority "])
    if marker == "@cert-authority " or (marker and draw.random() < 0.3):
        key = _public(draw.choice([*servers.authorities, servers.authorities[0], servers.gateway.host_key()]))
    else:
        key = _key(draw.choice([servers.host, servers.gateway]), draw.choice(KINDS))
    names = _right_name(name, port, draw) if draw.random() < 0.6 else _other_name(name, port, draw)
    return f"{marker}{names} {key}" + draw.choice(["", " a comment", "\r"])


def _right_name(name: str, port: int, draw: random.Random) -> str:
    return draw.choice(
        [
            name,
            name,
            f"gpu1,{name},gpu2",
            "*",
            f"*,!{name.replace('1', '7')}",
            name[:-1] + "?",
            name.replace("Cluster", "C*").replace("127", "1*"),
            name.upper(),
            _hashed(name, draw),
            f"[127.0.0.?]:{port},{ALIAS}",
        ]
    )


def _other_name(name: str, port: int, draw: random.Random) -> str:
    """Of another port, of none, of somebody else, or not of this one."""
    return draw.choice(
        [
            "127.0.0.1",
            "127.0.0.1",
            "127.0.0.*",
            "127.*,!127.0.0.1",
            f"*,!{name}",
            f"!{name},*",
            f"[127.0.0.1]:{port + 1}",
            "[127.0.0.1]:*",
            "localhost",
            "node",
            "[127.0.0.1]",
            "[127.0.0.1]:22",
            ALIAS.lower(),
            _hashed("127.0.0.1", draw),
            _hashed(ALIAS.lower(), draw),
            _hashed(f"[127.0.0.1]:{port + 1}", draw),
            "|1|broken|",
            "[[]127.0.0.1]:*",
        ]
    )


def _hashed(name: str, draw: random.Random) -> str:
    salt = draw.randbytes(20)
    parts = (salt, hmac.digest(salt, name.encode(), hashlib.sha1))
    return "|1|" + "|".join(base64.b64encode(part).decode() for part in parts)


def _key(server: Sshd, kind: str) -> str:
    return _public(server.host_key(kind))


def _public(path: Path) -> str:
    return " ".join(path.read_text().split()[:2])


def names_one_of(text: str, options: Sequence[str]) -> bool:
    """Whether what a person is told names one of them."""
    return any(option in text for option in options)
