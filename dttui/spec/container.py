"""`run.container`: the image that a job's processes run in, and the engine of each host that starts it there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dttui.spec.effects import LAUNCHED
from dttui.spec.section import Section
from dttui.spec.text import IMAGE, MOUNT, Text


class Container(Section):
    """Runs the job's processes in an image. Network, shared memory and process numbers are those of the host."""

    engine: Literal["docker", "podman", "apptainer"] = Field(json_schema_extra=LAUNCHED)
    """What starts it; it has to be on every host, where the agent's user may use it without a password."""
    image: str = Field(pattern=IMAGE, json_schema_extra=LAUNCHED)
    """Name of an image that every host has; for apptainer a file, `/images/torch.sif`, or an address such as
    `docker://pytorch/pytorch`."""
    mounts: tuple[Annotated[str, Field(pattern=MOUNT)], ...] = Field(default=(), json_schema_extra=LAUNCHED)
    """Directories of the host that are seen inside, `/data:/data:ro`.

    Those of the job are seen without it: what is sent, an absolute `workdir`, the dataset, the checkpoints, storage.
    """
    gpus: Literal["node", "all", "none"] = Field(default="node", json_schema_extra=LAUNCHED)
    """Which GPUs are seen inside: those that the job has of the node, all of the host, or none."""
    options: tuple[Text, ...] = Field(default=(), json_schema_extra=LAUNCHED)
    """More options of the engine's `run` or `exec`, such as `--cap-add=IPC_LOCK`; they come last, and so win."""
