"""Logs in on a connection whose host key has been checked: keys, agent, one-time codes, password, in that order."""

from __future__ import annotations

import concurrent.futures
import re
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

from dttui.errors import AuthenticationError, HostUnreachableError
from dttui.i18n import _
from dttui.sanitize import clean
from dttui.transport.agent_keys import AgentKey, AgentSigner, SshAgent
from dttui.transport.base import Prompt, PromptKind
from dttui.transport.host_keys import Hop
from dttui.transport.keys import Identity, KeyFile, KeyRing
from dttui.transport.known_hosts import DEFAULT_PORT
from dttui.transport.link import Link
from dttui.transport.passphrases import Unlocker
from dttui.transport.questions import Questions
from dttui.transport.threads import Threads

MAX_QUESTION_CHARS = 2000


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

    async def run(self) -> None:
        """Return once the server is satisfied.

        Raises:
            AuthenticationError: It is not, and there is nothing left to try.
            HostUnreachableError: The connection broke.
        """
        if await self._needs_nothing():
            return
        with closing(SshAgent(self.hop.target.agent_socket)) as agent:
            async with aclosing(self._identities(agent)) as identities:
                await self._run(identities)

    async def _needs_nothing(self) -> bool:
        """Also how one learns what the server wants; this attempt is not held against us."""
        try:
            self._offered = await self._call(self.link.transport.auth_none, self._user)
        except paramiko.BadAuthenticationType as error:
            self._offered = list(error.allowed_types)
        except paramiko.AuthenticationException:
            return False
        return not self._offered

    async def _run(self, identities: AsyncGenerator[Identity, None]) -> None:
        methods: dict[str, Callable[[], Awaitable[bool]]] = {
            "publickey": lambda: self._publickey(identities),
            "keyboard-interactive": self._keyboard_interactive,
            "password": self._password,
        }
        authenticated = False
        while not authenticated:
            method = next((name for name in methods if self._usable(name)), None)
            if method is None or self._declined:
                raise self._refused()
            authenticated = await methods[method]()

    @property
    def _user(self) -> str:
        return self.hop.target.user

    def _usable(self, method: str) -> bool:
        return method in self._offered and method in self.hop.target.methods and method not in self._exhausted

    async def _attempt(self, label: str, function: Callable[..., list[str]], *arguments: object) -> bool | None:
        """True when it was right, False when it was wrong, `None` when it was right and the server wants more."""
        self._tried.append(label)
        try:
            remaining = await self._call(function, self._user, *arguments)
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

    async def _call(self, function: Callable[..., list[str]], *arguments: object) -> list[str]:
        try:
            return await self.threads.connecting(self.link.call, function, *arguments)
        except (paramiko.SSHException, EOFError, OSError) as error:
            if isinstance(error, paramiko.AuthenticationException) and self.link.is_alive:
                raise
            if isinstance(error, _DeclinedError):
                self._declined = True
                raise self._refused() from error
            raise self._hung_up(error) from error

    async def _publickey(self, identities: AsyncGenerator[Identity, None]) -> bool:
        async for identity in identities:
            if not self._takes(identity.key):
                self._unusable.append(_("{key}: the server takes no RSA key").format(key=identity.label))
                continue
            outcome = await self._attempt(identity.label, self.link.transport.auth_publickey, identity.key)
            if outcome is not False:
                return outcome is True
            if "publickey" not in self._offered:
                return False
        self._exhausted.add("publickey")
        return False

    def _takes(self, key: paramiko.PKey) -> bool:
        """Whether there is a signature algorithm for a key. For RSA without one paramiko would end the connection."""
        algorithms = getattr(self.link.transport, "server_extensions", {}).get("server-sig-algs", b"")
        return "rsa" not in key.get_name() or not algorithms or b"rsa-sha2-" in bytes(algorithms)

    async def _identities(self, agent: SshAgent) -> AsyncGenerator[Identity, None]:
        """Yield what there is: the inventory's key, open files, the agent's keys, and files that need a passphrase.

        A key that an agent holds is used from there, without its passphrase.
        """
        target = self.hop.target
        in_agent = {key.blob: key for key in await self.threads.connecting(agent.keys)}
        files = await self.threads.connecting(self._key_files)
        locked = []
        for file in files:
            if file.public_blob in in_agent:
                yield _from_agent(agent, in_agent.pop(file.public_blob))
            elif file.locked and file.path != target.identity_file:
                locked.append(file)
            else:
                for identity in await self._open(file):
                    yield identity
        if not target.identities_only:
            for key in in_agent.values():
                yield _from_agent(agent, key)
        for file in locked:
            for identity in await self._open(file):
                yield identity

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

    async def _open(self, file: KeyFile) -> Sequence[Identity]:
        if file.problem:
            self._unusable.append(f"{file.path}: {file.problem}")
            return ()
        if file.locked:
            silent = self.hop.target.prompts == 0
            if silent or not await self.unlocker.unlock(file, self.hop.title, self.questions):
                self._locked.append(file.path)
                self._unusable.append(_("{key}: locked by a passphrase").format(key=file.path))
                return ()
        return await self.threads.connecting(file.identities, self.hop.target.certificate_files)

    async def _keyboard_interactive(self) -> bool:
        for _attempt in range(self.hop.target.prompts):
            asked = self._questions_asked
            outcome = await self._attempt(
                "keyboard-interactive", self.link.transport.auth_interactive, self._answer_in_thread
            )
            if outcome is not False:
                return outcome is True
            if "keyboard-interactive" not in self._offered or asked == self._questions_asked:
                break
        self._exhausted.add("keyboard-interactive")
        return False

    def _answer_in_thread(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str]:
        """What paramiko calls, in its own thread, when the server asks."""
        try:
            return self.questions.from_thread(self._answer(title, instructions, prompts))
        except concurrent.futures.CancelledError as error:
            raise _DeclinedError("given up") from error

    async def _answer(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str]:
        answers = []
        for text, echo in prompts:
            self._questions_asked += 1
            lines = [clean(part).strip() for part in (title, instructions, text)]
            password = not echo and re.search("passwor[dt]", text, re.IGNORECASE) is not None
            self._asked_password |= password
            kind = PromptKind.PASSWORD if password else PromptKind.ONE_TIME_CODE
            question = "\n".join(line for line in lines if line)[:MAX_QUESTION_CHARS]
            answer = await self.questions.ask(Prompt(kind, self.hop.title, question, secret=not echo))
            if answer is None:
                raise _DeclinedError("declined")
            answers.append(answer)
        return answers

    async def _password(self) -> bool:
        text = _("Password of {user}@{host}")
        tries = 0 if self._asked_password else self.hop.target.prompts
        for _attempt in range(tries):
            question = text.format(user=self._user, host=self.hop.target.hostname)
            answer = await self.questions.ask(Prompt(PromptKind.PASSWORD, self.hop.title, question))
            if answer is None:
                self._declined = True
                return False
            outcome = await self._attempt("password", self._send_password, answer)
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
        reason = self.link.words.farewell or clean(str(error)) or _("no reason given")
        if not self._tried:
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
        offered = clean(", ".join(self._offered)) or _("nothing")
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


def _from_agent(agent: SshAgent, key: AgentKey) -> Identity:
    signer = AgentSigner(agent, key)
    return Identity(signer, _("agent key {name}").format(name=clean(key.comment or signer.get_name())))
