"""The first call of a conversation: who is there, and what he knows."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class HelloRequest:
    """The first call on a connection."""

    versions: list[int]
    """Protocol versions the client speaks."""
    client: str = ""
    """Name and version, for the log."""


@dataclass(frozen=True)
class HelloReply:
    """Who answers."""

    version: int
    """Newest protocol version that both speak."""
    agent_version: str
    hostname: str
    pid: int
    boot_id: str
    time: float
    """Unix time, this host's clock."""
    takes_bytes: bool = False
    """Whether a request may bring bytes along, as `rpc.RequestReader` has it."""
    ends_services: bool = False
    """Whether it ends processes that only serve others when those have ended."""
    seals_rendezvous: bool = False
    """Whether its launcher has a rendezvous to which nobody writes without `StartRequest.rendezvous_key`."""
    gathers_rounds: bool = False
    """Whether each round of that rendezvous begins with nodes that are there, and who was left behind stays away."""
    tells_groups: bool = False
    """Whether its ranks note the process groups that they form, as `NodeStatus.groups` tells."""
    removes_containers: bool = False
    """Whether it carries out `ProcessSpec.removal`, and tells `PrepareReply.user_ids`."""
    fences_itself: bool = False
    """Whether it ends an attempt by `StartRequest.self_fence_s`."""
    keeps_line: bool = False
    """Whether jobs may wait for GPUs there, by `QueueRequest`."""
    takes_named_gpus: bool = False
    """Whether it gives a job just the GPUs of `PrepareRequest.gpu_ids`, and has it wait for those."""
    checks_health: bool = False
    """Whether it runs `StartRequest.health`."""
    tells_call_times: bool = False
    """Whether it tells when ranks called their collectives."""
    searches_metrics: bool = False
    """Whether it looks for `StartRequest.metric_patterns`."""
    keeps_directories: bool = False
    """Whether it carries out `PrepareRequest.keeps`, and tells and hands out what attempts have saved."""
    unpacks: list[str] = field(default_factory=list)
    """What of `packing.PACKINGS` it takes a `PackedStartRequest` by."""
