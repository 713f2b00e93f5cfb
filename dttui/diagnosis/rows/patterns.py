"""What the words of several causes begin with or have in common."""

from __future__ import annotations

RAISED = r"[\w.:]+: "
"""The type of an exception."""
WATCHDOG = r"(?:\[[^\]\n]*\] (?:Process group|NCCL) watchdog thread terminated with exception: )?"
GAP = r"[^\n]{0,800}?"
"""Between two words of one line. Unbounded gaps, one after the other, would take minutes over a text made for that."""
WIDE_GAP = r".{0,800}?"
"""The same over lines."""
CUDA = rf"{RAISED}{WATCHDOG}(?:CUDA error: |cuda runtime error \(\d+\) : )"
GLOO_PEER = (
    r"(?:Connection closed by peer|Connection reset by peer|Broken pipe|Software caused connection abort"
    r"|Socket closed|Read error)"
)
NCCL_PEER = (
    r"(?:ncclRemoteError|remote process exited or there was a network error|Connection closed by remote peer"
    r"|failed : (?:Connection reset by peer|Broken pipe|Software caused connection abort|Connection refused)"
    r"|Got completion from peer|NCCL communicator was aborted)"
)
