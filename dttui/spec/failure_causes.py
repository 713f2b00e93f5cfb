"""Kinds of what makes jobs fail, by the code of the cause: what `recovery.retry_on` names, and what is tried again."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

PREFLIGHT, HOST_UNREACHABLE, LAUNCH = "preflight", "host-unreachable", "launch"
"""Before any rank ran: a check refused, a host was out of reach, or the start failed and was rolled back."""
INTERNAL, INVALID = "internal-error", "invalid-job"
"""A defect of dttui, or a job that cannot be planned any more."""
NEVER_RAN = frozenset({PREFLIGHT, HOST_UNREACHABLE, LAUNCH})
"""Causes of an attempt of which no rank ran to an end."""
ALERT = "alert"
"""An alert whose action is to restart the job."""

UNHEALTHY = "unhealthy"
STRAGGLER = "straggler"
"""A host that is not well by the job's own command, whose action is to restart it."""


class CauseKind(str, Enum):
    """What a cause has to do with."""

    NODE = "node"
    """A host that is lost, out of reach, or does not pass the checks of another attempt."""
    SIGNAL = "signal"
    """A process was ended from outside, or crashed in compiled code."""
    GPU = "gpu"
    """A GPU, its driver or its links failed."""
    COMMUNICATION = "communication"
    """A collective or the rendezvous did not come to its end in time, or a peer went away."""
    HEALTH = "health"
    """The job itself has it that it does not go well: by an alert, or a command, that is to restart it."""
    SERVICE = "service"
    """A file system or another service failed."""
    UNKNOWN = "unknown"
    """Nothing but an exit code is known."""
    ROOM = "room"
    """The memory, disk or time that a process may have is used up."""
    INSTALLATION = "installation"
    """What the script needs is not there, or of another version."""
    SCRIPT = "script"
    """The script's own error: its next run would come to the same."""

    @property
    def is_retried(self) -> bool:
        """Whether another attempt may come further, where the job says nothing of the cause."""
        return self in _RETRIED


_RETRIED = frozenset(
    {
        CauseKind.NODE,
        CauseKind.SIGNAL,
        CauseKind.GPU,
        CauseKind.COMMUNICATION,
        CauseKind.HEALTH,
        CauseKind.SERVICE,
        CauseKind.UNKNOWN,
    }
)
_CODES = {
    CauseKind.NODE: (
        "node-lost self-fenced agent-gone supervisor-lost unkillable "
        f"{HOST_UNREACHABLE} host-refused {PREFLIGHT} {LAUNCH}"
    ),
    CauseKind.SIGNAL: (
        "killed terminated segfault bus-error aborted arithmetic signal worker-killed host-oom ended-with-others"
    ),
    CauseKind.GPU: "gpu-ecc gpu-lost gpu-xid gpu-busy cuda-fault cuda-error fabric-manager",
    CauseKind.COMMUNICATION: "collective-timeout rendezvous-timeout hang peer-gone nccl-error port-in-use",
    CauseKind.HEALTH: f"{ALERT} {UNHEALTHY} {STRAGGLER}",
    CauseKind.SERVICE: "storage-error service-unreachable disk-was-full",
    CauseKind.UNKNOWN: f"exit-code unknown {INTERNAL} {INVALID}",
    CauseKind.ROOM: "cuda-oom memory-refused shm-full disk-full too-many-files cpu-limit file-limit",
    CauseKind.INSTALLATION: (
        "shared-library version-mismatch missing-module import-error interpreter-missing workdir-missing "
        "not-executable permission read-only missing-file nccl-version driver-too-old no-cuda-build no-gpu "
        "device-ordinal gpu-unsupported illegal-instruction prefix-failed not-authorised"
    ),
    CauseKind.SCRIPT: (
        "exception exit-message arguments framework-arguments syntax-error not-finite device-assert "
        "collective-mismatch unused-parameters model-differs device-ids checkpoint-device module-shadowed "
        "gpu-shared-by-ranks process-group checkpoint-format checkpoint-corrupt "
        "checkpoint-mismatch interrupted rendezvous-tampered"
    ),
}
KIND_OF_CAUSE: Mapping[str, CauseKind] = MappingProxyType(
    {code: kind for kind, codes in _CODES.items() for code in codes.split()}
)
"""Code of a cause, as `dttui diagnose` tells it → its kind."""
HARDWARE = frozenset({"gpu-ecc", "gpu-lost", "gpu-xid", "fabric-manager"})
"""Causes that stay with the host."""
UNREADABLE = frozenset({"checkpoint-corrupt"})
"""Causes that lie with the checkpoint from which an attempt went on, where it made no step; an older one may do."""


def kind_of(cause: str | None) -> CauseKind:
    """Return the kind of a cause: unknown where nobody tells one; of one that is not in the table, the script's."""
    return CauseKind.UNKNOWN if cause is None else KIND_OF_CAUSE.get(cause, CauseKind.SCRIPT)
