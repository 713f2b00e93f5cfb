"""`python -m dttui`."""

from __future__ import annotations

import sys

from dttui.cli import main

sys.exit(main())
