"""`python -m dtagent`."""

from __future__ import annotations

import sys

from dtagent.cli import main

sys.exit(main())
