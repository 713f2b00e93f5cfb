"""Environments and datasets as an inventory declares them. Knows nothing of where they were read from."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from dttui.spec.units import Bytes

HOST_PATTERN = r"^[A-Za-z0-9_.:%\[\]][A-Za-z0-9_.:%@\[\]-]*$"
"""A host name, address or ssh alias; never begins with `-`, which ssh would read as an option."""


def _port_range(text: str) -> str:
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if not match or not 1024 <= int(match[1]) <= int(match[2]) <= 65535:
        raise ValueError("expected FIRST-LAST with 1024 ≤ FIRST ≤ LAST ≤ 65535, such as 29500-29999")
    return text


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class GpuResources(_Document):
    """GPUs of an environment, as declared."""

    count: int = Field(ge=0, le=1024)
    """How many."""
    type: str | None = None
    """Model name, `A100`."""
    memory: Bytes | None = None
    """Memory of each, `80GB`."""
    simulated: bool = False
    """The count is the number of slots, run on CPU with gloo; facts never override it."""


class CpuResources(_Document):
    """CPUs and memory of an environment, as declared."""

    cores: int | None = Field(default=None, ge=1)
    """Logical CPUs."""
    memory: Bytes | None = None
    """Host memory, `128GB`."""


class Resources(_Document):
    """What an environment is declared to have; facts win when known."""

    gpu: GpuResources | None = None
    """GPUs."""
    cpu: CpuResources | None = None
    """CPUs and host memory."""


class Environment(_Document):
    """A host offered for training."""

    name: str = Field(min_length=1, max_length=80)
    """What the checkbox shows; anything printable."""
    host: str = Field(pattern=HOST_PATTERN, max_length=255)
    """Host name, address or alias of ~/.ssh/config."""
    id: str | None = None
    """What a job's node ids match; the name by default."""
    kind: str | None = None
    """Free tag, `jupyter`."""
    zone: str | None = None
    """Availability zone."""
    image: str | None = None
    """Software image, for the person to read."""
    user: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """Login name."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """SSH port."""
    identity_file: str | None = None
    """Private key."""
    proxy_jump: str | None = Field(default=None, pattern=HOST_PATTERN)
    """Host to go through."""
    known_hosts: str | None = None
    """File with this host's key, instead of the user's."""
    address: str | None = Field(default=None, pattern=HOST_PATTERN)
    """Address that training traffic uses, where it differs from host."""
    python: str | None = None
    """Interpreter of jobs on this host."""
    port_range: Annotated[str, AfterValidator(_port_range)] = "29500-29999"
    """Ports a job's rendezvous may listen on."""
    resources: Resources = Resources()
    """Declared resources."""
    local: bool = False
    """This machine: reached without SSH."""
    agent_root: str | None = None
    """State directory of the agent there, where it is not the usual one."""

    @property
    def key(self) -> str:
        """What a job's nodes name it by: the id, or the name."""
        return self.id or self.name

    @property
    def ports(self) -> tuple[int, int]:
        """First and last port of `port_range`."""
        first, last = self.port_range.split("-")
        return int(first), int(last)

    @property
    def training_address(self) -> str:
        """Address that other nodes reach this one by."""
        return self.address or self.host

    @property
    def simulated(self) -> bool:
        """Whether its GPUs are simulated."""
        return self.resources.gpu is not None and self.resources.gpu.simulated


class DatasetVersion(_Document):
    """One version of a dataset."""

    id: str
    """Version id."""
    path: str
    """Where it lies on every host."""


class Dataset(_Document):
    """A dataset of the catalogue."""

    id: str
    """Dataset id."""
    versions: tuple[DatasetVersion, ...] = Field(min_length=1)
    """Versions, the preferred one first."""


class Inventory(_Document):
    """All environments and datasets on offer."""

    environments: tuple[Environment, ...] = ()
    """Hosts."""
    datasets: tuple[Dataset, ...] = ()
    """Catalogue."""

    @model_validator(mode="after")
    def _unique(self) -> Inventory:
        seen: set[str] = set()
        for environment in self.environments:
            if environment.key in seen:
                raise ValueError(f"two environments are called {environment.key!r}")
            seen.add(environment.key)
        return self

    def find(self, key: str) -> Environment | None:
        """Return the environment whose id, or else whose name, is `key`."""
        by_id = next((item for item in self.environments if item.id == key), None)
        return by_id or next((item for item in self.environments if item.name == key), None)
