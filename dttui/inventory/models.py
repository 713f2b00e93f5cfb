"""Environments and datasets as an inventory declares them. Knows nothing of where they were read from."""

from __future__ import annotations

import posixpath
import re
import shlex
from enum import Enum
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from dttui.i18n import _
from dttui.sanitize import shortened
from dttui.spec.problems import PathKey, PlacedValueError, shown
from dttui.spec.quantities import Bytes
from dttui.spec.text import HOST_NAME, USER_NAME, Label, Text, describe_pattern

MAX_GPUS = 1024
"""Most that one environment can be declared with."""
MAX_WORDS = 256
"""Of a command that reaches a host."""
MAX_WAY_CHARS = 60
LOOPBACK = "127.0.0.1"
"""Where a host reaches itself, whatever others call it."""


def _port_range(text: str) -> str:
    match = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text)
    if not match or not 1024 <= int(match[1]) <= int(match[2]) <= 65535:
        raise ValueError(_("expected FIRST-LAST with 1024 ≤ FIRST ≤ LAST ≤ 65535, such as 29500-29999"))
    return text


_MOST_ROOT_BYTES = 1024
"""What lies below has names too, and a path may have 4,096 bytes."""
_MOST_NAME_BYTES = 255
"""As Linux has it."""


def _agent_root(text: str) -> str:
    if not text.isprintable() or not text.startswith("/") or ".." in text.split("/") or text.strip("/.") == "":
        raise ValueError(
            _("expected the absolute path of a directory on the host, without .., such as /scratch/me/dtagent")
        )
    if len(text.encode()) > _MOST_ROOT_BYTES:
        raise ValueError(_("expected a path of at most {count:,} bytes").format(count=_MOST_ROOT_BYTES))
    if max(len(name.encode()) for name in text.split("/")) > _MOST_NAME_BYTES:
        message = _("expected a path whose names have at most {count} bytes each")
        raise ValueError(message.format(count=_MOST_NAME_BYTES))
    return posixpath.normpath(f"/{text.lstrip('/')}")


AgentRoot = Annotated[Text, AfterValidator(_agent_root)]
"""An absolute path, in one spelling."""


def _begins_with_program(words: tuple[str, ...]) -> tuple[str, ...]:
    program = words[0]
    if not program.strip() or not program.isprintable() or program.startswith("-"):
        raise PlacedValueError(
            ((0,), _("expected the name or path of a program, found {value}").format(value=shown(program)))
        )
    if "/" in program and not program.startswith(("/", "~/")):
        # Controllers run in directories of their own.
        message = _(
            "a relative path leads elsewhere from another directory: write a program of PATH, or an absolute path"
        )
        raise PlacedValueError(((0,), message))
    return words


Command = Annotated[tuple[Text, ...], Field(min_length=1, max_length=MAX_WORDS), AfterValidator(_begins_with_program)]
"""A program and its arguments, as they are: no shell reads them."""


def _nothing_is_empty(value: object) -> object:
    return () if value is None else value


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GpuResources(_Document):
    """GPUs of an environment, as declared."""

    count: int = Field(ge=0, le=MAX_GPUS)
    """How many."""
    type: Label | None = None
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


class Reach(str, Enum):
    """How a host is reached; for each there is a transport."""

    SSH = "ssh"
    EXEC = "exec"
    """By a command that starts others there, and passes on their stdin and stdout."""
    LOCAL = "local"
    """It is this machine."""


OF_SSH = ("user", "port", "identity_file", "proxy_jump", "known_hosts")
"""Fields that mean something to SSH alone."""


class Environment(_Document):
    """A host offered for training."""

    name: Label = Field(max_length=80)
    """What the checkbox shows; anything printable."""
    host: str | None = Field(pattern=HOST_NAME, max_length=255)
    """Host name, address or alias of ~/.ssh/config; with `exec` or `local`, at most what other hosts call it."""
    exec: Command | None = None
    """The command that reaches it instead of SSH, `[docker, exec, -i, train1]`: `sh` comes after, and its stdin."""
    id: Annotated[Label, Field(max_length=80)] | None = None
    """What a job may call it by as well as its name."""
    kind: Label | None = None
    """Free tag, `jupyter`."""
    zone: Label | None = None
    """Availability zone."""
    image: Label | None = None
    """Software image, for the person to read."""
    user: str | None = Field(default=None, pattern=USER_NAME)
    """Login name."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """SSH port."""
    identity_file: Text | None = None
    """Private key."""
    proxy_jump: str | None = Field(default=None, pattern=HOST_NAME)
    """Host to go through."""
    known_hosts: Text | None = None
    """File with this host's key, instead of the user's."""
    address: str | None = Field(default=None, pattern=HOST_NAME)
    """Address that training traffic uses, where it differs from host."""
    python: Text | None = None
    """Interpreter of jobs on this host."""
    port_range: Annotated[str, AfterValidator(_port_range)] = "29500-29999"
    """Ports a job's rendezvous may listen on."""
    resources: Resources = Resources()
    """Declared resources."""
    local: bool = False
    """This machine: reached without SSH."""
    agent_root: AgentRoot | None = None
    """Directory on the host that is the agent's alone, where it is not to be the usual one."""

    @property
    def ports(self) -> tuple[int, int]:
        """First and last port of `port_range`."""
        first, last = self.port_range.split("-")
        return int(first), int(last)

    @model_validator(mode="before")
    @classmethod
    def _needs_no_host(cls, data: Any) -> Any:
        """What is reached otherwise may have no name in any network."""
        if not isinstance(data, dict) or "host" in data:
            return data
        if "exec" in data or "local" in data:
            return {**data, "host": None}
        if data.keys() - cls.model_fields.keys():
            return {**data, "host": None}  # Probably it is what is misspelt, which is told.
        raise ValueError(_("how it is reached is missing: host, exec (a command that reaches it) or local: true"))

    @model_validator(mode="after")
    def _reached_one_way(self) -> Environment:
        faults: list[tuple[PathKey, str]] = []
        if self.reach is Reach.SSH and self.host is None:
            faults.append(
                (
                    ("host",),
                    _("expected {wanted}, found {value}").format(wanted=describe_pattern(HOST_NAME), value=shown(None)),
                )
            )
        if self.exec is not None:
            if self.local:
                faults.append((("local",), _("with `exec`, the host is reached by that command: leave `local` out")))
            told = _("with `exec`, SSH is not used: leave `{field}` out, or `exec`")
            of_user = _(
                "with `exec`, SSH is not used: the command itself says which user, such as docker exec -i -u NAME"
            )
            for field in OF_SSH:
                if getattr(self, field) is not None:
                    faults.append(((field,), of_user if field == "user" else told.format(field=field)))
        if faults:
            raise PlacedValueError(*faults)
        return self

    @property
    def reach(self) -> Reach:
        """How it is reached."""
        if self.exec is not None:
            return Reach.EXEC
        return Reach.LOCAL if self.local else Reach.SSH

    @property
    def runs_program(self) -> bool:
        """Whether a program that the inventory names runs here to reach it: then nobody else may write to that."""
        return self.reach is Reach.EXEC

    @property
    def way(self) -> str:
        """Where it is reached, for people: `gpu1:2222`, `docker exec -i train1`."""
        if self.exec is not None:
            return shlex.join(self.exec)
        if self.host is None or self.local:
            return _("this machine")
        return self.host if self.port is None else f"{self.host}:{self.port}"

    @property
    def short_way(self) -> str:
        """The same in at most so many characters as leave room for more in a line."""
        return shortened(self.way, MAX_WAY_CHARS)

    @property
    def has_training_address(self) -> bool:
        """Whether anything says where other nodes reach it."""
        return self.reach is Reach.LOCAL or self.address is not None or self.host is not None

    @property
    def training_address(self) -> str:
        """Address that other nodes reach this one by; the loopback where it is known by none."""
        return self.address or self.host or LOOPBACK

    @property
    def simulated(self) -> bool:
        """Whether its GPUs are simulated."""
        return self.resources.gpu is not None and self.resources.gpu.simulated


class DatasetVersion(_Document):
    """One version of a dataset."""

    id: Label
    """Version id."""
    path: Text
    """Where it lies on every host."""


class Dataset(_Document):
    """A dataset of the catalogue."""

    id: Label
    """Dataset id."""
    versions: tuple[DatasetVersion, ...] = Field(min_length=1)
    """Versions, the preferred one first."""

    @model_validator(mode="after")
    def _unique(self) -> Dataset:
        seen: set[str] = set()
        faults: list[tuple[PathKey, str]] = []
        for index, version in enumerate(self.versions):
            if version.id in seen:
                faults.append((("versions", index, "id"), _('version "{id}" is here twice').format(id=version.id)))
            seen.add(version.id)
        if faults:
            raise PlacedValueError(*faults)
        return self

    def find(self, version: str | None) -> DatasetVersion | None:
        """Return the version of that id, or the preferred one where `version` is `None`."""
        if version is None:
            return self.versions[0]
        return next((item for item in self.versions if item.id == version), None)


class Inventory(_Document):
    """All environments and datasets on offer."""

    environments: Annotated[tuple[Environment, ...], BeforeValidator(_nothing_is_empty)] = ()
    """Hosts."""
    datasets: Annotated[tuple[Dataset, ...], BeforeValidator(_nothing_is_empty)] = ()
    """Catalogue."""

    @model_validator(mode="after")
    def _unique(self) -> Inventory:
        faults: list[tuple[PathKey, str]] = []
        owners: dict[str, int] = {}
        for index, environment in enumerate(self.environments):
            for field in ("name", "id"):
                called = getattr(environment, field)
                if called is not None and owners.setdefault(called, index) != index:
                    place: PathKey = ("environments", index, field)
                    faults.append((place, _('another environment is called "{name}" too').format(name=called)))
        datasets: set[str] = set()
        for index, dataset in enumerate(self.datasets):
            if dataset.id in datasets:
                faults.append((("datasets", index, "id"), _('dataset "{id}" is here twice').format(id=dataset.id)))
            datasets.add(dataset.id)
        if faults:
            raise PlacedValueError(*faults)
        return self

    def find(self, key: str) -> Environment | None:
        """Return the environment whose id, or else whose name, is `key`."""
        return self._by_key.get(key)

    @cached_property
    def _by_key(self) -> dict[str, Environment]:
        names = {item.name: item for item in reversed(self.environments)}
        return names | {item.id: item for item in reversed(self.environments) if item.id is not None}

    def find_dataset(self, dataset: str) -> Dataset | None:
        """Return the dataset of that id."""
        return next((item for item in self.datasets if item.id == dataset), None)
