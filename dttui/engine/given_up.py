"""Why an attempt was ended, or one of its nodes given up, as values; the words are made where it is told. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from dttui.errors import AgentError, HostError
from dttui.i18n import msg


@dataclass(frozen=True)
class EndedFor:
    """Why an attempt is ended though nothing of it has failed."""

    cause: str
    """Code."""
    told: str
    """What was told of it."""
    hint: str = ""
    node: str | None = None
    """For which; `None` where none is to blame."""


@dataclass(frozen=True)
class NotFollowed:
    """A node whose logs and status can no longer be followed."""

    error: BaseException

    @property
    def words(self) -> str:
        """Why."""
        error = self.error
        return error.message if isinstance(error, HostError) else f"{type(error).__name__}: {error}"


@dataclass(frozen=True)
class NotEnded:
    """A node that could be reached and did not end."""

    node: str
    refusal: AgentError | None = None
    """What its agent has answered when it was told to; `None` where it has taken that."""

    @property
    def words(self) -> str:
        """Why it runs on."""
        return self.refusal.message if self.refusal is not None else msg("{host} did not end in time", host=self.node)


@dataclass(frozen=True)
class GivenUp:
    """A node of which nobody knows what runs there."""

    name: str
    not_followed: NotFollowed | None = None
    not_ended: NotEnded | None = None
    is_agent_gone: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether nothing more is known than that its host does not answer."""
        return self.not_followed is None and self.not_ended is None and not self.is_agent_gone
