"""The seam between dttui and a host: connect, then byte streams to commands there. Knows nothing of what they say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from dttui.sanitize import shortened

if TYPE_CHECKING:
    from dttui.inventory.models import Environment

CONNECT_TIMEOUT_S = 20.0
"""How long a host may take to answer."""
MAX_ACCOUNT_CHARS = 100


class RemoteCommand(Enum):
    """The only commands dttui runs on a host: constant strings, so that nothing is ever quoted. All data goes by stdin.

    The agent's root on a host is `/var/tmp/dtagent-<uid>`, or what was taken instead where others have that; `current`
    in it is a link to the version in use.
    """

    AGENT = "agent"
    """`dtagent connect`: stdio to the daemon's socket. Exits 127 where there is no agent."""
    AGENT_AT = "agent-at"
    """The same for an agent with a root of its own, which comes first on stdin, with a line end.

    No caller asks for it: where an environment has an `agent_root`, a transport runs this for `AGENT`, and writes that.
    """
    BOOTSTRAP = "bootstrap"
    """Finds a Python ≥ 3.10 and runs the program that comes first on stdin."""


class PromptKind(str, Enum):
    """What a person is asked for."""

    PASSWORD = "password"  # noqa: S105 - a kind, not a password
    PASSPHRASE = "passphrase"  # noqa: S105
    ONE_TIME_CODE = "code"
    HOST_KEY = "host-key"


@dataclass(frozen=True)
class Prompt:
    """A question that only a person can answer."""

    kind: PromptKind
    host: str
    text: str
    """What is asked for, in our words."""
    secret: bool = True
    """Whether the answer must not be echoed."""
    fingerprint: str = ""
    """Of the key in question, for `HOST_KEY`; the answer is `yes` to take it."""
    user: str = ""
    """Whom the host is asked to let in."""
    said: str = ""
    """The server's own words, lines of them. Nobody vouches for what they say."""

    @property
    def account(self) -> str:
        """Whom the question is about: `user@host`."""
        return shortened(f"{self.user}@{self.host}" if self.user else self.host, MAX_ACCOUNT_CHARS)


class Prompter(Protocol):
    """Asks a person, at a terminal or in the TUI."""

    async def ask(self, prompt: Prompt) -> str | None:
        """Return the answer; `None` when nobody is there or the person declines."""


class Nobody:
    """A prompter for when no person is there."""

    async def ask(self, prompt: Prompt) -> str | None:
        """Return `None`."""
        return None


class ByteStream(Protocol):
    """Stdin and stdout of one command on a host."""

    async def read(self) -> bytes:
        """Return the next bytes of its stdout; `b""` at the end, and once the link is cut.

        Where it is cancelled no byte is lost: the next read returns it.
        """

    async def write(self, data: bytes) -> None:
        """Write to its stdin, waiting while the other side does not read.

        Raises:
            HostUnreachableError: the command has ended, or the link is cut.
        """

    async def write_eof(self) -> None:
        """Close its stdin."""

    async def wait(self) -> tuple[int | None, bytes]:
        """Return its exit status and the last 16 KiB of its stderr, once it ended.

        The status is `None` where it was killed or the link was cut; 126 and 127 of `AGENT` mean that there is no
        agent.
        """

    async def close(self) -> None:
        """Let go of it. Safe to call twice."""


class Connection(Protocol):
    """An authenticated way to one host."""

    @property
    def environment(self) -> Environment:
        """Where it leads."""

    @property
    def address(self) -> str:
        """IP address the connection reached, for training traffic where the inventory names none."""

    async def run(self, command: RemoteCommand) -> ByteStream:
        """Start a command.

        Raises:
            HostUnreachableError: the link is gone or was closed, or the command does not start in time.
        """

    async def close(self) -> None:
        """Close the connection and all its streams. Safe to call twice."""


class Transport(Protocol):
    """Makes connections."""

    async def connect(self, environment: Environment, prompter: Prompter, timeout_s: float) -> Connection:
        """Connect and authenticate; the time in which a person answers does not count.

        Raises:
            HostUnreachableError: no answer within `timeout_s`, refused, or no such name.
            HostKeyError: the key is unknown and was not confirmed, or has changed.
            AuthenticationError: no credential was accepted. After either the host waits for a person.
        """

    async def close(self) -> None:
        """Close what its connections have in common; they may go with it."""
