"""Steps a second by the times at which steps were read, for trainers that tell no speed. Pure."""

from __future__ import annotations

from collections import deque

WINDOW_S = 60.0
"""Of readings that count together; of steps that take longer the last two."""
LEAST_S = 3.0
"""Between the first and the last of them: readings come a second apart."""


class StepPace:
    """The readings of one rank, in order."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def take(self, step: int, now: float) -> float | None:
        """Take the newest step that was read; return the steps a second of late, `None` as long as nobody can say.

        Args:
            step: as the trainer counts.
            now: monotonic seconds.
        """
        if self._readings and step < self._readings[-1][1]:
            self._readings.clear()  # It begins anew.
        if not self._readings or step > self._readings[-1][1]:
            self._readings.append((now, step))
        while len(self._readings) > 2 and self._readings[1][0] < now - WINDOW_S:
            self._readings.popleft()
        first_at, first = self._readings[0]
        last_at, last = self._readings[-1]
        return float(f"{(last - first) / (last_at - first_at):.4g}") if last_at - first_at >= LEAST_S else None
