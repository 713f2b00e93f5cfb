"""Prints docs/faults.md: `python -m tests.faults > docs/faults.md`."""

from __future__ import annotations

import sys

from tests.faults.document import render

sys.stdout.write(render())
