"""What the person's ssh configuration says about a host, as `ssh -G` resolves it. Opens no connection."""

from __future__ import annotations

import functools
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from dttui.errors import HostUnreachableError
from dttui.i18n import _
from dttui.locations import local_user
from dttui.sanitize import clean
from dttui.transport.ssh.algorithms import Algorithms
from dttui.transport.ssh.config_blocks import ConfigBlocks, Likeness, transferable
from dttui.transport.ssh.known_hosts import DEFAULT_PORT, entry_name
from dttui.variables import for_a_process, variables

CACHE_S = 60.0
"""How long an answer of `ssh -G` is used again; an edited configuration takes effect after that."""

_SSH_G_TIMEOUT_S = 10.0
"""For a `Match exec` that hangs."""

_ONLY_SSH_FOLLOWS = re.compile(r"^[ \t]*(?:include\b|match\b.*\bexec\b)", re.IGNORECASE | re.MULTILINE)
_LENIENT = {
    "stricthostkeychecking": ("StrictHostKeyChecking", {"yes", "true", "ask", "accept-new"}),
    "nohostauthenticationforlocalhost": ("NoHostAuthenticationForLocalhost", {"no", "false"}),
    "verifyhostkeydns": ("VerifyHostKeyDNS", {"no", "false", "ask"}),
}
"""Options by which ssh takes keys that nobody vouches for, and their values by which it does not."""
_ON = {"yes", "true"}
_SWITCHES = {
    "publickey": "pubkeyauthentication",
    "keyboard-interactive": "kbdinteractiveauthentication",
    "password": "passwordauthentication",
}
"""Ways to log in, and the options that switch them off."""
_AS_WRITTEN = {"true": "yes", "false": "no"}
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


class UnknownKeyPolicy(Enum):
    """StrictHostKeyChecking: what happens with a host whose key is not known. A changed key is always refused."""

    ASK = "ask"
    ACCEPT = "accept-new"
    REFUSE = "true"


@dataclass(frozen=True)
class HostQuery:
    """A host, and what the inventory or a jump list says about it; that wins over the configuration."""

    host: str
    user: str | None = None
    port: int | None = None
    proxy_jump: str | None = None
    identity_file: str | None = None


@dataclass(frozen=True)
class SshTarget:
    """Everything that is needed to connect to one host."""

    name: str
    """As it was asked for: a host name, an address or an alias."""
    hostname: str
    port: int = DEFAULT_PORT
    user: str = ""
    family: socket.AddressFamily = socket.AF_UNSPEC
    identity_file: Path | None = None
    """The key the inventory names."""
    identity_files: tuple[Path, ...] = ()
    """The keys the configuration names, which by default are the usual ones."""
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent_socket: Path | None = None
    known_hosts_files: tuple[Path, ...] = ()
    """The user's and the system's."""
    host_key_alias: str | None = None
    unknown_key_policy: UnknownKeyPolicy = UnknownKeyPolicy.ASK
    proxy_jump: tuple[str, ...] = ()
    """Hosts to go through, the first one first; each `[user@]host[:port]`."""
    proxy_command: str | None = None
    algorithms: Algorithms = field(default_factory=Algorithms)
    required_rsa_bits: int = 0
    """Shorter RSA keys are not taken, neither the host's nor one's own."""
    revoked_host_keys: Path | None = None
    """Keys that are not taken, in one's own words or as a KRL."""
    checks_address: bool = False
    """CheckHostIP: whether what is known of the address must not contradict."""
    not_followed: tuple[str, ...] = ()
    """Options by which ssh takes a host key that dttui does not take."""
    obstacle: str = ""
    """An option that ssh follows and dttui cannot."""
    methods: frozenset[str] = frozenset({"publickey", "keyboard-interactive", "password"})
    """Ways of authentication that the configuration does not rule out."""
    prompts: int = 3
    """How often a password may be asked for; 0 with BatchMode."""

    @property
    def known_as(self) -> str:
        """The name to enter in a known_hosts file."""
        return self.host_key_alias.lower() if self.host_key_alias else entry_name(self.hostname, self.port)

    @property
    def looked_up_as(self) -> str:
        """The name to look for in one: of an alias ssh hashes the capitals too."""
        return self.host_key_alias or self.known_as


Options = dict[str, list[str]]


@dataclass
class _Shared:
    """What `ssh -G` says of all hosts that are alike; `None` where each has to be asked for."""

    until: float = 0.0
    options: Options | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the first one is asked for."""


@dataclass
class SshConfig:
    """Asks `ssh -G`, once for all hosts that the configuration treats alike; blocking, and safe to use from threads.

    Only where there is no ssh it reads the user's file by paramiko's parser.
    """

    config_file: Path | None = None
    """Read instead of the user's and the system's files."""
    binary: str | None = field(default_factory=lambda: shutil.which("ssh"))
    _cache: dict[tuple[HostQuery, str], tuple[float, SshTarget]] = field(default_factory=dict, init=False)
    """Of each host with the ssh-agent of then: a controller may be given another one."""
    _blocks: tuple[float, ConfigBlocks] | None = field(default=None, init=False)
    _shared: dict[tuple[object, Likeness], _Shared] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def resolve(self, query: HostQuery) -> SshTarget:
        """Return how to reach a host.

        Raises:
            HostUnreachableError: The configuration cannot be read.
        """
        key = (query, variables().get("SSH_AUTH_SOCK", ""))
        with self._lock:
            cached = self._cache.get(key)
        if cached and time.monotonic() < cached[0]:
            return cached[1]
        options = self._ask(query) if self.binary else self._parse(query)
        target = _target(query, options, _defaults(self.binary) if self.binary else {})
        with self._lock:
            self._cache[key] = (time.monotonic() + CACHE_S, target)
        return target

    def _ask(self, query: HostQuery) -> Options:
        host = query.host.strip("[]")
        likeness = self._read_blocks().likeness(host)
        if likeness is None:
            return self._ask_ssh(query)
        with self._lock:
            shared = self._shared.setdefault(((query.user, query.port, query.proxy_jump), likeness), _Shared())
        with shared.lock:
            if time.monotonic() >= shared.until:
                options = self._ask_ssh(query)
                shared.options = options if transferable(options, host) else None
                shared.until = time.monotonic() + CACHE_S
                return options
        return {**shared.options, "host": [host], "hostname": [host]} if shared.options else self._ask_ssh(query)

    def _read_blocks(self) -> ConfigBlocks:
        with self._lock:
            if self._blocks is None or time.monotonic() >= self._blocks[0]:
                self._blocks = (time.monotonic() + CACHE_S, ConfigBlocks(self.config_file))
            return self._blocks[1]

    def _ask_ssh(self, query: HostQuery) -> Options:
        command = [self.binary or "ssh", "-G"]
        if self.config_file:
            command += ["-F", str(self.config_file)]
        if query.user:
            command += ["-l", query.user]
        if query.port:
            command += ["-p", str(query.port)]
        if query.proxy_jump:
            command += ["-o", f"ProxyJump={query.proxy_jump}"]
        command += ["--", query.host.strip("[]")]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_SSH_G_TIMEOUT_S,
                env=for_a_process(),
                check=False,
            )
        except BlockingIOError:
            raise  # Not of the configuration: no more processes can be started here.
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unreadable(query, str(error)) from error
        if done.returncode != 0:
            lines = clean(done.stderr.decode("utf-8", "replace")).strip().splitlines()
            raise _unreadable(query, lines[0] if lines else str(done.returncode))
        options: Options = {}
        for line in done.stdout.decode("utf-8", "surrogateescape").splitlines():
            keyword, _space, value = line.partition(" ")
            options.setdefault(keyword.lower(), []).append(value)
        return options

    def _parse(self, query: HostQuery) -> Options:
        """Knows less than ssh does: no Include and no command of Match; what is not read may revoke keys."""
        from paramiko import SSHConfig, SSHException  # Start-up: paramiko costs 130 ms and is seldom needed here.

        path = self.config_file or Path("~/.ssh/config").expanduser()
        try:
            text = path.read_text("utf-8", "surrogateescape") if path.is_file() else ""
            if _ONLY_SSH_FOLLOWS.search(text):
                reason = _(
                    "{path} has Include or Match exec, which dttui cannot follow by itself, and there is no ssh here"
                )
                hint = _("Install the OpenSSH client, which dttui asks what the configuration says.")
                raise HostUnreachableError(query.host, reason.format(path=path), hint)
            # Left to paramiko, that would be whatever $USER says.
            text = _substitute(text, {"u": local_user()})
            parsed = SSHConfig.from_text(text).lookup(query.host.strip("[]"))
        except (OSError, ValueError, SSHException) as error:
            raise _unreadable(query, str(error)) from error
        options = {key: value if isinstance(value, list) else [value] for key, value in parsed.items()}
        if query.user:
            options["user"] = [query.user]
        if query.port:
            options["port"] = [str(query.port)]
        if query.proxy_jump:
            options["proxyjump"] = [query.proxy_jump]
        options.setdefault("identityfile", [f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ed25519")])
        for keyword, usual in (("user", "~/.ssh/known_hosts"), ("global", "/etc/ssh/ssh_known_hosts")):
            options.setdefault(f"{keyword}knownhostsfile", [f"{usual} {usual}2"])
        return options


def split_hop(hop: str) -> HostQuery:
    """Return what one entry of ProxyJump names: `[user@]host[:port]`, an IPv6 address in brackets, or an ssh:// URI."""
    text = hop.strip().removeprefix("ssh://").rstrip("/")
    user, _at, place = text.rpartition("@")
    match = re.fullmatch(r"(\[[^\]]+\]|[^:]+)(?::(\d{1,5}))?", place)
    if match is None:  # A bare IPv6 address.
        return HostQuery(place, user or None)
    return HostQuery(match[1].strip("[]"), user or None, int(match[2]) if match[2] else None)


@functools.cache
def _defaults(binary: str) -> Mapping[str, list[str]]:
    """What `ssh -G` says where nothing is configured; nothing where it does not answer."""
    command = [binary, "-G", "-F", "/dev/null", "--", "localhost"]
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=for_a_process(),
            text=True,
        ) as asking:
            output = asking.communicate(timeout=_SSH_G_TIMEOUT_S)[0]
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    return {keyword: [value] for keyword, _space, value in (line.partition(" ") for line in output.splitlines())}


def _target(query: HostQuery, options: Mapping[str, list[str]], defaults: Mapping[str, list[str]]) -> SshTarget:
    def first(keyword: str, default: str = "") -> str:
        values = options.get(keyword)
        return values[0] if values else default

    def word(keyword: str) -> str | None:
        """What a keyword says, where `none` says nothing."""
        value = first(keyword, "none")
        return None if value.lower() == "none" else value

    def number(keyword: str, default: int) -> int:
        value = first(keyword)
        return int(value) if value.isdigit() else default

    hostname = first("hostname", query.host).strip("[]")
    port = number("port", DEFAULT_PORT)
    user = query.user or first("user") or local_user()
    alias = first("hostkeyalias") or None
    tokens = _tokens(query.host, hostname, port, user, alias)

    def paths(keyword: str) -> tuple[Path, ...]:
        values = [value for value in options.get(keyword, ()) if value.lower() != "none"]
        return tuple(Path(_expand(value, tokens)) for value in values)

    def listed_paths(keyword: str) -> tuple[Path, ...]:
        return tuple(Path(_expand(value, tokens)) for value in _split_paths(first(keyword)) if value != "none")

    batch = first("batchmode") in _ON
    policy = _unknown_key_policy(first("stricthostkeychecking", "ask"))
    if first("userknownhostsfile") == "none" or (batch and policy is UnknownKeyPolicy.ASK):
        # As ssh, which takes no key that it cannot keep; and where nobody is to be asked, nobody says yes.
        policy = UnknownKeyPolicy.REFUSE
    algorithms = Algorithms.read(options, defaults)
    revoked, command = word("revokedhostkeys"), word("proxycommand")
    return SshTarget(
        name=query.host,
        hostname=hostname,
        port=port,
        user=user,
        family=_FAMILIES.get(first("addressfamily"), socket.AF_UNSPEC),
        identity_file=Path(query.identity_file).expanduser() if query.identity_file else None,
        identity_files=paths("identityfile"),
        certificate_files=paths("certificatefile"),
        identities_only=first("identitiesonly") in _ON,
        agent_socket=_agent_socket(first("identityagent"), tokens),
        known_hosts_files=listed_paths("userknownhostsfile") + listed_paths("globalknownhostsfile"),
        host_key_alias=alias,
        unknown_key_policy=policy,
        algorithms=algorithms,
        required_rsa_bits=number("requiredrsasize", 0),
        revoked_host_keys=None if revoked is None else Path(_expand(revoked, tokens)),
        checks_address=first("checkhostip", "no") in _ON,
        not_followed=tuple(
            f"{option} {_AS_WRITTEN.get(first(keyword), first(keyword))}"
            for keyword, (option, harmless) in _LENIENT.items()
            if keyword in options and first(keyword) not in harmless
        ),
        obstacle="KnownHostsCommand" if word("knownhostscommand") is not None else algorithms.missing(),
        proxy_jump=tuple(hop for hop in (word("proxyjump") or "").split(",") if hop.strip()),
        proxy_command=None if command is None else _substitute(command, tokens),
        methods=_methods(first),
        prompts=0 if batch else number("numberofpasswordprompts", 3),
    )


def _methods(first: Callable[[str, str], str]) -> frozenset[str]:
    """Return the ways to log in that are neither switched off nor left out.

    Args:
        first: gives the value of a keyword, or of one that is not there what it is then.
    """
    methods = {method for method, keyword in _SWITCHES.items() if first(keyword, "yes") in _ON}
    preferred = first("preferredauthentications", "")
    return frozenset(methods & set(preferred.split(",")) if preferred else methods)


def _unknown_key_policy(value: str) -> UnknownKeyPolicy:
    if value in {"no", "off", "false", "accept-new"}:
        return UnknownKeyPolicy.ACCEPT
    return UnknownKeyPolicy.REFUSE if value in _ON else UnknownKeyPolicy.ASK


def _agent_socket(value: str, tokens: Mapping[str, str]) -> Path | None:
    if value.lower() == "none":
        return None
    if not value or value == "SSH_AUTH_SOCK":
        value = variables().get("SSH_AUTH_SOCK", "")
    elif value.startswith("$") and not value.startswith("${"):
        value = variables().get(value[1:], "")
    return Path(_expand(value, tokens)) if value else None


def _split_paths(value: str) -> list[str]:
    """`ssh -G` separates paths by a space and quotes none: a word that starts no path goes on with the last one."""
    paths: list[str] = []
    for word in value.split(" "):
        if paths and not word.startswith(("/", "~", "%", "$", "none")):
            paths[-1] += " " + word
        elif word:
            paths.append(word)
    return paths


def _tokens(name: str, hostname: str, port: int, user: str, alias: str | None) -> dict[str, str]:
    local = socket.gethostname()
    return {
        "%": "%",
        "d": os.path.expanduser("~"),
        "h": hostname,
        "i": str(os.getuid()),
        "k": alias or hostname,
        "L": local.partition(".")[0],
        "l": local,
        "n": name,
        "p": str(port),
        "r": user,
        "u": local_user(),
    }


def _expand(value: str, tokens: Mapping[str, str]) -> str:
    """A path with its tokens, environment variables and `~` filled in; what is unknown stays."""
    expanded = re.sub(r"\$\{(\w+)\}", lambda match: variables().get(match[1], match[0]), value)
    return os.path.expanduser(_substitute(expanded, tokens))


def _substitute(value: str, tokens: Mapping[str, str]) -> str:
    return re.sub(r"%(.)", lambda match: tokens.get(match[1], match[0]), value)


def _unreadable(query: HostQuery, reason: str) -> HostUnreachableError:
    return HostUnreachableError(
        query.host,
        _("the ssh configuration for {host} cannot be read: {reason}").format(host=query.host, reason=clean(reason)),
        _("`ssh -G {host}` shows what is wrong.").format(host=query.host),
    )
