"""Which attempt of which job: what all calls about one name it by."""

from __future__ import annotations

from dataclasses import dataclass

from dtagent.protocol.bounds import check_range

MAX_ATTEMPT = 10**6
MAX_WORLD_SIZE = 10**7


@dataclass(frozen=True)
class AttemptKey:
    """Names one gang start of one job."""

    job_id: str
    attempt: int

    def __post_init__(self) -> None:
        """Raise OutOfRangeError for a number that no attempt has."""
        check_range("attempt", self.attempt, 0, MAX_ATTEMPT)
