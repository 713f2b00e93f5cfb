"""What widgets tell their screen: facts in the past tense."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from dttui.jobs import JobDirectory


@dataclass
class EnvironmentToggled(Message):
    """A person ticked or unticked environments."""

    keys: tuple[str, ...]


@dataclass
class MasterChosen(Message):
    """A person chose the master."""

    key: str


@dataclass
class GpusStepped(Message):
    """A person asked for that many more GPUs of an environment, or fewer."""

    key: str
    step: int


@dataclass
class EnvironmentHighlighted(Message):
    """The cursor came to an environment; `None` where the list shows none."""

    key: str | None

    def can_replace(self, message: Message) -> bool:
        """Only the last of several moves matters."""
        return isinstance(message, EnvironmentHighlighted)


@dataclass
class FrameworkChosen(Message):
    """A person chose the framework."""

    name: str


@dataclass
class FrameworksWanted(Message):
    """A person wants to choose the framework."""


@dataclass
class FormEdited(Message):
    """A person changed a field of the job's form."""


@dataclass
class LogChosen(Message):
    """A person chose which log to see."""

    node: str | None
    """`None` for all nodes."""
    stream: str | None
    """`3.out`, `launcher.err`; `None` for all of the node's."""
    attempt: int | None = None
    """`None` for the newest, whichever that is."""
    moment: float | None = None
    """Unix time to go to; `None` for the end."""


@dataclass
class LogSaveWanted(Message):
    """A person wants to have the lines in a file that a log shows."""


@dataclass
class LogTimeChosen(Message):
    """A person wants to see a log from a time on, as people write it."""

    text: str


@dataclass
class ImportWanted(Message):
    """A person wants to add hosts of another file to the inventory, such as the ssh configuration."""


@dataclass
class DemoWanted(Message):
    """A person wants the embedded cluster."""


@dataclass
class JobLaunched(Message):
    """A job was handed to a controller of its own."""

    directory: JobDirectory


@dataclass
class JobChosen(Message):
    """A person wants to watch a job."""

    job_id: str


@dataclass
class NodesScrolled(Message):
    """Other nodes of a job can be seen."""


@dataclass
class JobHighlighted(Message):
    """The cursor came to a job, or that is another now; `None` where the list shows none."""

    job_id: str | None

    def can_replace(self, message: Message) -> bool:
        """Only the last of several moves matters."""
        return isinstance(message, JobHighlighted)


@dataclass
class JobToggled(Message):
    """A person marked a job, or took its mark away."""

    job_id: str


@dataclass
class JobsSorted(Message):
    """A person wants jobs sorted by a column; by the same once more, the other way round."""

    column: str
    """Value of a `JobColumn`."""
