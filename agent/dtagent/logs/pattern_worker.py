"""Looks for a person's regular expressions in lines, in a process of its own: what it is asked comes on its input.

Python's matching can take time without end and lets no other thread in; but it takes signals, so a timer of the
process's CPU time ends it. It imports nothing of the agent. A first line of JSON on its input names the expressions,
`{"patterns": {"reward": "return of (.*)"}}`; then a line is a request, `{"lines": […]}`, and has a line for an answer.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
import warnings
from collections.abc import Sequence

LINE_BUDGET_S = 0.02
"""CPU time that an expression may take for one line; a common one takes a thousandth of a millisecond."""
MAX_STRIKES = 3
"""Lines that an expression may be too slow for before it is looked for no more."""


REQUEST_S = 1.0
"""For all lines of a request; the others are left out."""


class _TooSlow(Exception):
    """Raised into a search by the timer."""


class Patterns:
    """Expressions that have not been too slow yet, by the name of the metric."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.dropped: list[str] = []
        """Names of those that are looked for no more."""
        self._strikes: dict[str, int] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._is_armed = False
        warnings.simplefilter("ignore")
        for name, text in texts.items():
            try:
                self._patterns[name] = re.compile(text)
            except (re.error, RecursionError, OverflowError):
                self.dropped.append(name)  # Python is another one here than where it was checked.
        signal.signal(signal.SIGVTALRM, self._expire)

    def search(self, line: str) -> dict[str, str]:
        """Return what the group of each expression holds that the line matches."""
        found = {}
        for name, pattern in list(self._patterns.items()):
            try:
                self._is_armed = True
                signal.setitimer(signal.ITIMER_VIRTUAL, LINE_BUDGET_S)
                match = pattern.search(line)
                self._is_armed = False
            except _TooSlow:
                self._strike(name)
                continue
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            value = match and match["value" if "value" in pattern.groupindex else 1]
            if value:
                found[name] = value
        return found

    def _expire(self, _number: int, _frame: object) -> None:
        if self._is_armed:
            self._is_armed = False
            raise _TooSlow

    def _strike(self, name: str) -> None:
        self._strikes[name] = self._strikes.get(name, 0) + 1
        if self._strikes[name] >= MAX_STRIKES:
            del self._patterns[name]
            self.dropped.append(name)


def main() -> None:
    """Answer until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    patterns = Patterns(json.loads(sys.stdin.buffer.readline())["patterns"])
    for request in sys.stdin.buffer:
        sys.stdout.write(json.dumps(_answer(patterns, json.loads(request)["lines"])) + "\n")
        sys.stdout.flush()


def _answer(patterns: Patterns, lines: Sequence[str]) -> dict[str, object]:
    until = time.monotonic() + REQUEST_S
    found: list[tuple[int, dict[str, str]]] = []
    for index, line in enumerate(lines):
        if time.monotonic() > until:
            return {"found": found, "dropped": patterns.dropped, "unread": len(lines) - index}
        if told := patterns.search(line):
            found.append((index, told))
    return {"found": found, "dropped": patterns.dropped, "unread": 0}


if __name__ == "__main__":
    main()
