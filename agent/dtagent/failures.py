"""What an attempt's ranks and launcher wrote of their failures: the job's own processes can write anything there."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

from dacite import DaciteError, from_dict

from dtagent.locations import AttemptFiles
from dtagent.protocol.jobs import RankFailure

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_TEXT = 16 * 1024
"""Characters of an error or traceback that are passed on."""


def read(files: AttemptFiles) -> list[RankFailure]:
    """Join what the ranks recorded themselves (traceback) with what their launcher saw (exit code or signal)."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(files.failures.glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            if path.stat().st_size > MAX_FILE_BYTES:
                continue
            body = json.loads(path.read_text())
            for item in body if isinstance(body, list) else [body]:
                known = found.setdefault(int(item["rank"]), {})
                # The rank's own word on its error beats the launcher's, the launcher's on its exit beats the rank's.
                known.update({key: value for key, value in item.items() if value is not None and key not in known})
                if isinstance(body, list):
                    known.update(exit_code=item.get("exit_code"), signal=item.get("signal"))
    failures = []
    for rank, body in sorted(found.items()):
        # The job's own processes can write these files: what does not fit is left out, and never breaks the status.
        with contextlib.suppress(DaciteError, ValueError, TypeError):
            texts = {name: text[-MAX_TEXT:] for name, text in body.items() if isinstance(text, str)}
            fields = {**body, **texts, "rank": rank, "time": _finite(body.get("time", 0.0))}
            failures.append(from_dict(RankFailure, fields))
    return failures


def _finite(value: Any) -> float:
    number = float(value)
    return number if math.isfinite(number) else 0.0
