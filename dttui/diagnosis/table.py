"""What the common causes of a failure look like and mean: a table of recognisers, the most particular first.

Each row knows a cause by the words of the exception that ended the process, or by a line that it printed. The words are
those of CPython, torch, NCCL, gloo and others, read in their sources and in reports of people who met them.
The order counts across subjects too: errors of shared memory speak of a full device, and NCCL's of peers.
"""

from __future__ import annotations

from dttui.diagnosis.recogniser import Recogniser
from dttui.diagnosis.rows import communication, gpu, installation, resources, training

RECOGNISERS: tuple[Recogniser, ...] = (
    *resources.ROWS,
    *communication.ROWS,
    *installation.ROWS,
    *gpu.ROWS,
    *training.ROWS,
)
