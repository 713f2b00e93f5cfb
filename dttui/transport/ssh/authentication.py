"""Logs in on a connection whose host key has been checked: keys, agent, one-time codes, password, in that order."""

from __future__ import annotations

import concurrent.futures
import re
import shlex
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from dttui.errors import AuthenticationError, HostUnreachableError
from dttui.i18n import _
from dttui.sanitize import clean, shortened
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.ssh.agent_keys import AgentKey, AgentSigner, SshAgent
from dttui.transport.ssh.hop import Hop
from dttui.transport.ssh.keys import Identity, KeyFile, KeyRing
from dttui.transport.ssh.known_hosts import DEFAULT_PORT
from dttui.transport.ssh.link import MAX_REASON_CHARS, Link, brief
from dttui.transport.ssh.passphrases import Unlocker
from dttui.transport.ssh.questions import Questions
from dttui.transport.ssh.threads import Threads

MAX_SAID_CHARS = 600
"""Of each of a title, instructions and a question of a server."""
MAX_QUESTIONS_AT_ONCE = 32
"""What PAM can ask at once."""


class _DeclinedError(paramiko.SSHException):
    """Nobody answered the server's question."""


@dataclass
class Authentication:
    """One login. Tells afterwards what was tried."""

    hop: Hop
    link: Link
    threads: Threads
    ring: KeyRing
    unlocker: Unlocker
    questions: Questions
    _offered: list[str] = field(default_factory=list)
    """What the server takes next."""
    _tried: list[str] = field(default_factory=list)
    _unusable: list[str] = field(default_factory=list)
    """Keys that could not be tried, with the reason."""
    _locked: list[Path] = field(default_factory=list)
    _declined: bool = False
    _questions_asked: int = 0
    _asked_password: bool = False
    """In the course of keyboard-interactive; asking once more for the method of that name would lead nowhere."""
    _exhausted: set[str] = field(default_factory=set)
    _agent: SshAgent = field(init=False)
    _candidates: deque[KeyFile | AgentKey] | None = field(default=None, init=False)
    """What keys may come of, in order; `None` before anything was looked at."""
    _identities: deque[Identity] = field(default_factory=deque, init=False)
    """Keys that can be tried now, before the next candidate."""

    def __post_init__(self) -> None:
        self._agent = SshAgent(self.hop.target.agent_socket)

    def begin(self) -> bool:
        """Go as far as nobody has to be asked, and return whether the server is satisfied. Blocking.

        One step for what is nearly always enough: each change of threads costs more than most of what is done.

        Raises:
            HostUnreachableError: The connection broke.
        """
        outcome = self._first_key()
        if outcome is False:
            return self._needs_nothing() or (self._usable("publickey") and self._publickey() is True)
        return outcome is True

    async def finish(self) -> None:
        """Return once the server is satisfied, where `begin` was not enough.

        Raises:
            AuthenticationError: It is not, and there is nothing left to try.
            HostUnreachableError: The connection broke.
        """
        methods: dict[str, Callable[[], Awaitable[bool]]] = {
            "publickey": self._publickey_unlocking,
            "keyboard-interactive": self._keyboard_interactive,
            "password": self._password,
        }
        authenticated = False
        while not authenticated:
            method = next((name for name in methods if self._usable(name)), None)
            if method is None or self._declined:
                raise self._refused()
            authenticated = await methods[method]()

    def close(self) -> None:
        """Let go of the agent; a thread that waits for it gets an error."""
        self._agent.close()

    def _first_key(self) -> bool | None:
        """Try the first key before asking what the server wants: where it is the right one that saves two round trips.

        Not an RSA key: which signatures the server takes may not have come yet. Not an agent's: it may ask its owner.
        """
        if "publickey" not in self.hop.target.methods:
            return False
        self._candidates = self._find_candidates()
        first = self._candidates[0] if self._candidates else None
        if not isinstance(first, KeyFile) or first.locked or first.problem:
            return False
        self._identities.extend(self._open(self._candidates.popleft()))
        if not self._identities or "rsa" in self._identities[0].key.get_name():
            return False
        if self._forbidden(self._identities[0].key):
            return False
        self._offered = ["publickey"]
        identity = self._identities.popleft()
        return self._attempt(identity.label, self.link.transport.auth_publickey, identity.key)

    def _needs_nothing(self) -> bool:
        """Also how one learns what the server wants; this attempt is not held against us."""
        try:
            self._offered = self._call(self.link.transport.auth_none, self._user)
        except paramiko.BadAuthenticationType as error:
            self._offered = list(error.allowed_types)
        except paramiko.AuthenticationException:
            return False
        return not self._offered

    @property
    def _user(self) -> str:
        return self.hop.target.user

    def _usable(self, method: str) -> bool:
        return method in self._offered and method in self.hop.target.methods and method not in self._exhausted

    def _attempt(self, label: str, function: Callable[..., list[str]], *arguments: object) -> bool | None:
        """True when it was right, False when it was wrong, `None` when it was right and the server wants more."""
        self._tried.append(label)
        try:
            remaining = self._call(function, self._user, *arguments)
        except paramiko.BadAuthenticationType as error:
            self._offered = list(error.allowed_types)
            return False
        except paramiko.AuthenticationException:
            return False
        if not remaining:
            return True
        self._offered = list(remaining)
        self._exhausted.clear()
        return None

    def _call(self, function: Callable[..., list[str]], *arguments: object) -> list[str]:
        try:
            return self.link.call(function, *arguments)
        except (paramiko.SSHException, EOFError, OSError) as error:
            if isinstance(error, paramiko.AuthenticationException) and self.link.is_alive:
                raise
            if isinstance(error, _DeclinedError):
                self._declined = True
                raise self._refused() from error
            raise self._hung_up(error) from error

    def _publickey(self) -> bool | KeyFile:
        """Blocking. Return the file that has to be unlocked before it can go on."""
        if self._candidates is None:
            self._candidates = self._find_candidates()
        while self._identities or self._candidates:
            if not self._identities:
                candidate = self._candidates[0]
                if isinstance(candidate, KeyFile) and candidate.locked:
                    return candidate
                self._identities.extend(self._open(candidate))
                self._candidates.popleft()
                continue
            identity = self._identities.popleft()
            if not self._takes(identity.key):
                self._unusable.append(_("{key}: the server takes no RSA key").format(key=identity.label))
                continue
            if forbidden := self._forbidden(identity.key):
                self._unusable.append(_("{key}: not allowed by {option}").format(key=identity.label, option=forbidden))
                continue
            outcome = self._attempt(identity.label, self.link.transport.auth_publickey, identity.key)
            if outcome is not False:
                return outcome is True
            if "publickey" not in self._offered:
                return False
        self._exhausted.add("publickey")
        return False

    async def _publickey_unlocking(self) -> bool:
        while isinstance(outcome := await self.threads.connecting(self._publickey), KeyFile):
            silent = self.hop.target.prompts == 0
            if silent or not await self.unlocker.unlock(outcome, self.hop.title, self._user, self.questions):
                self._locked.append(outcome.path)
                self._unusable.append(_("{key}: locked by a passphrase").format(key=outcome.path))
                if self._candidates:
                    self._candidates.popleft()
        return outcome

    def _takes(self, key: paramiko.PKey) -> bool:
        """Whether there is a signature algorithm for a key. For RSA without one paramiko would end the connection."""
        algorithms = getattr(self.link.transport, "server_extensions", {}).get("server-sig-algs", b"")
        return "rsa" not in key.get_name() or not algorithms or b"rsa-sha2-" in bytes(algorithms)

    def _forbidden(self, key: paramiko.PKey) -> str:
        """The option of the configuration that rules a key out, `""` where none does."""
        target = self.hop.target
        blob = getattr(key, "public_blob", None)
        kind = blob.key_type if blob else key.get_name()
        if not target.algorithms.may_sign_with(kind):
            return "PubkeyAcceptedAlgorithms"
        return "RequiredRSASize" if "rsa" in kind and 0 < _rsa_bits(key) < target.required_rsa_bits else ""

    def _find_candidates(self) -> deque[KeyFile | AgentKey]:
        """Blocking. The inventory's key, open files, the agent's keys, and files that need a passphrase.

        A key that an agent holds is used from there, without its passphrase.
        """
        target = self.hop.target
        in_agent = {key.blob: key for key in self._agent.keys()}  # noqa: SIM118 - no dictionary
        found: deque[KeyFile | AgentKey] = deque()
        locked = []
        for file in self._key_files():
            if file.public_blob in in_agent:
                found.append(in_agent.pop(file.public_blob))
            elif file.locked and file.path != target.identity_file:
                locked.append(file)
            else:
                found.append(file)
        if not target.identities_only:
            found.extend(in_agent.values())
        found.extend(locked)
        return found

    def _key_files(self) -> list[KeyFile]:
        target = self.hop.target
        named = (target.identity_file,) if target.identity_file else ()
        files = []
        for path in dict.fromkeys((*named, *target.identity_files)):
            file = self.ring.load(path)
            if file is None:
                if path == target.identity_file:
                    self._unusable.append(_("{key}: no such file").format(key=path))
            elif file.problem and file.public_blob is None:
                self._unusable.append(f"{path}: {file.problem}")
            else:
                files.append(file)
        return files

    def _open(self, candidate: KeyFile | AgentKey) -> Sequence[Identity]:
        if isinstance(candidate, AgentKey):
            signer = AgentSigner(self._agent, candidate)
            label = _("agent key {name}").format(name=clean(candidate.comment or signer.get_name()))
            return (Identity(signer, label),)
        if candidate.problem:
            self._unusable.append(f"{candidate.path}: {candidate.problem}")
            return ()
        return candidate.identities(self.hop.target.certificate_files)

    async def _keyboard_interactive(self) -> bool:
        for _attempt in range(self.hop.target.prompts):
            asked = self._questions_asked
            outcome = await self.threads.connecting(
                self._attempt, "keyboard-interactive", self.link.transport.auth_interactive, self._answer_in_thread
            )
            if outcome is not False:
                return outcome is True
            if "keyboard-interactive" not in self._offered or asked == self._questions_asked:
                break
        self._exhausted.add("keyboard-interactive")
        return False

    def _answer_in_thread(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str]:
        """What paramiko calls, in a thread, when the server asks."""
        if len(prompts) > MAX_QUESTIONS_AT_ONCE:
            raise paramiko.SSHException(_("it asked {count} questions at once").format(count=len(prompts)))
        try:
            return self.questions.from_thread(self._answer(title, instructions, prompts))
        except concurrent.futures.CancelledError as error:
            raise _DeclinedError("given up") from error

    async def _answer(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str]:
        answers = []
        for text, echo in prompts:
            self._questions_asked += 1
            parts = (part[:MAX_SAID_CHARS] for part in (title, instructions, text))
            # A carriage return and its like are a new line: nothing is written over anything.
            said = clean("\n".join(line for part in parts for line in part.splitlines()))
            password = not echo and re.search("passwor[dt]", text, re.IGNORECASE) is not None
            self._asked_password |= password
            kind = PromptKind.PASSWORD if password else PromptKind.ONE_TIME_CODE
            question = _("answer for the server") if echo else _("answer for the server, not shown")
            prompt = Prompt(kind, self.hop.title, question, secret=not echo, user=self._user, said=said)
            answer = await self.questions.ask(prompt)
            if answer is None:
                raise _DeclinedError("declined")
            answers.append(answer)
        return answers

    async def _password(self) -> bool:
        text = _("Password of {user}@{host}")
        tries = 0 if self._asked_password else self.hop.target.prompts
        for _attempt in range(tries):
            question = text.format(user=self._user, host=self.hop.target.hostname)
            prompt = Prompt(PromptKind.PASSWORD, self.hop.title, question, user=self._user)
            answer = await self.questions.ask(prompt)
            if answer is None:
                self._declined = True
                return False
            outcome = await self.threads.connecting(self._attempt, "password", self._send_password, answer)
            if outcome is not False:
                return outcome is True
            if "password" not in self._offered:
                break
            text = _("That was not it. Password of {user}@{host}")
        self._exhausted.add("password")
        return False

    def _send_password(self, user: str, password: str) -> list[str]:
        return self.link.transport.auth_password(user, password, fallback=False)

    def _hung_up(self, error: Exception) -> HostUnreachableError | AuthenticationError:
        target = self.hop.target
        if self.link.refusal:
            return self.link.cut_off()
        reason = self.link.words.farewell or brief(error) or _("no reason given")
        if not self._tried or not self.link.words.farewell:
            # A server that has had enough says so; without a word it is as likely the network, and worth another try.
            message = _("{host} closed the connection before the login: {reason}")
            hint = _("`ssh -v {name} true` shows more.").format(name=target.name)
            return HostUnreachableError(
                self.hop.environment.name, message.format(host=target.hostname, reason=reason), hint
            )
        message = _("{host} closed the connection after {count} attempts to log in as {user}: {reason}; tried: {tried}")
        return AuthenticationError(
            self.hop.environment.name,
            message.format(
                host=target.hostname, count=len(self._tried), user=self._user, reason=reason, tried=self._summary()
            ),
            _("Name the right key as `identity_file` in the inventory, or set `IdentitiesOnly yes` in ~/.ssh/config."),
        )

    def _refused(self) -> AuthenticationError:
        target = self.hop.target
        offered = shortened(", ".join(self._offered), MAX_REASON_CHARS) or _("nothing")
        message = _("{host} let {user} not in: it takes {offered}; tried: {tried}").format(
            host=target.hostname, user=self._user, offered=offered, tried=self._summary()
        )
        if self._unusable:
            message += _("; not usable: {keys}").format(keys=", ".join(dict.fromkeys(self._unusable)))
        return AuthenticationError(self.hop.environment.name, message, self._remedy())

    def _summary(self) -> str:
        return ", ".join(dict.fromkeys(self._tried)) or _("nothing")

    def _remedy(self) -> str:
        target = self.hop.target
        port = f"-p {target.port} " if target.port != DEFAULT_PORT else ""
        copy = f"ssh-copy-id {port}{shlex.quote(f'{self._user}@{target.hostname}')}"
        if self._locked:
            hint = _(
                "Add the key to an ssh-agent, `ssh-add {path}`, or run dttui in a terminal to type the passphrase."
            )
            return hint.format(path=shlex.quote(str(self._locked[0])))
        if self._declined:
            return _("Run dttui in a terminal to answer, or set up a key once: `{command}`.").format(command=copy)
        if "publickey" in self._offered:
            return _("Name the right key as `identity_file` in the inventory, or install yours: `{command}`.").format(
                command=copy
            )
        return _("The server wants a login that dttui has not; `ssh -v {name} true` shows which.").format(
            name=target.name
        )


def _rsa_bits(key: paramiko.PKey) -> int:
    """Length of an RSA key, from its public half: an agent's key has no other; 0 where that is none."""
    fields = paramiko.Message(key.asbytes())
    if fields.get_text() != "ssh-rsa":
        return 0
    fields.get_mpint()
    return int(fields.get_mpint().bit_length())
