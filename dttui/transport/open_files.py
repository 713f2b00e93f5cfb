"""How many files this process may have open: a thousand hosts need more descriptors than the usual 1,024."""

from __future__ import annotations

import contextlib
import resource

OPEN_FILES = 16_384


def raise_open_files() -> None:
    """Raise the soft limit, as far as the hard one allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
