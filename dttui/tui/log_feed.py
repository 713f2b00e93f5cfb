"""Where the lines of the log come from that a person has chosen: a file, or what several of them get from now on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dttui.jobs import JobDirectory, JobView, LogFollower, LogPages, PastLogs, RecentLines, watching
from dttui.tui.log_lines import log_lines
from dttui.tui.messages import LogChosen

RECENT_LINES = 100_000
"""Of several logs together, that are kept."""
FIRST_LINES, FIRST_OF_ALL = 5000, 200
"""Of each log of a node, and of all nodes, that are there at first."""
Takes = Callable[[str, str], bool]


class LogFeed:
    """Fills a store, look by look.

    Args:
        directory: of the job.
        view: of it.
        choice: what a person has chosen.
        past: what has the logs of an attempt and node as they were at the time of a replay; `None` for a job as it is.
    """

    def __init__(
        self,
        directory: JobDirectory,
        view: JobView,
        choice: LogChosen,
        past: Callable[[int, str, Takes], PastLogs] | None = None,
    ) -> None:
        self.attempt = view.attempt if choice.attempt is None else choice.attempt
        self._choice = choice
        self._job_id = directory.job_id
        self._pages: LogPages | None = None
        self._follower: LogFollower | PastLogs | None = None
        self._recent = RecentLines(RECENT_LINES)
        self._nodes = list(view.nodes) if choice.node is None else [choice.node]
        if past is not None and choice.node is not None:
            self._follower = past(self.attempt, choice.node, self._takes)
        elif choice.node is not None and choice.stream is not None:
            path = directory.logs(self.attempt, choice.node) / choice.stream
            self._pages = LogPages(path, view.redaction())
        else:
            last = FIRST_LINES if choice.node is not None else FIRST_OF_ALL
            self._follower = LogFollower(
                directory,
                self.attempt,
                takes=self._takes,
                last_lines=last,
                redaction=view.redaction(),
                allowance=watching(),
            )

    @property
    def store(self) -> LogPages | RecentLines:
        """The lines."""
        return self._pages or self._recent

    @property
    def uncounted(self) -> LogPages | None:
        """What has lines before those that are known, which nobody has counted yet."""
        return self._pages if self._pages is not None and not self._pages.is_counted else None

    def poll(self, processes: Sequence[str]) -> bool:
        """Take in what is new; return whether there is anything.

        Args:
            processes: names of what writes to the logs; lines tell whose they are where several do.
        """
        if self._pages is not None:
            return self._pages.grow()
        before = self._recent.end
        among = processes if self._choice.stream is None else ()
        found = self._follower.poll(self._nodes) if self._follower is not None else []
        self._recent.add(log_lines(found, self._job_id, among=among, names_nodes=self._choice.node is None))
        return self._recent.end != before

    def _takes(self, process: str, stream: str) -> bool:
        return self._choice.stream in (None, f"{process}.{stream}")
