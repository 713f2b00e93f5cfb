"""What the agents of all nodes are told to start: what many of them are told alike is made ready for sending once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dtagent.protocol.alike import fold
from dtagent.protocol.attempt_key import AttemptKey
from dtagent.protocol.health import HealthCheck
from dtagent.protocol.jobs import PackedStartRequest, ProcessSpec, StartRequest, TextFile
from dtagent.protocol.packing import PACKINGS, pack
from dtagent.protocol.rpc import MAX_PUSH_BYTES, to_wire

from dttui.planning.health import HealthPolicy
from dttui.planning.models import PlannedNode
from dttui.rpc.client import AgentClient


@dataclass(frozen=True)
class StartCall:
    """A call that starts a node, as its agent takes it."""

    method: str
    request: StartRequest | PackedStartRequest
    brings: bytes = b""


class StartRequests:
    """The requests of all nodes of an attempt. Making them takes a while: seconds for some thousand processes.

    Args:
        key: of the attempt.
        nodes: bound.
        grace_s: between TERM and KILL when the attempt is stopped.
        secrets: environment variables that are written nowhere.
        log_cap_bytes: how much of each log is kept on the host.
        rendezvous_key: by which the nodes of an elastic attempt know each other, written nowhere.
        self_fence_s: silence after which a host ends its ranks by itself; `None` for never.
        health: when what says whether it goes well is run.
        metric_patterns: by the name of the metric, what is looked for in the ranks' output.
    """

    def __init__(
        self,
        key: AttemptKey,
        nodes: Sequence[PlannedNode],
        grace_s: float,
        secrets: Mapping[str, str],
        log_cap_bytes: int,
        rendezvous_key: str = "",
        self_fence_s: float | None = None,
        health: HealthPolicy | None = None,
        metric_patterns: Mapping[str, str] | None = None,
    ) -> None:
        self._secrets = dict(secrets)
        self._rendezvous_key = rendezvous_key
        self._requests = {
            node.name: replace(
                _request(key, node, grace_s, log_cap_bytes, self_fence_s),
                health=_health_check(node, health),
                metric_patterns=dict(metric_patterns or {}),
            )
            for node in nodes
        }
        folded = fold([to_wire(request) for request in self._requests.values()])
        self._rows = dict(zip(self._requests, folded["rows"], strict=True))
        self._kinds = [_alone(folded["texts"], kind) for kind in folded["kinds"]]
        self._packed: dict[tuple[int, str], bytes] = {}

    def call(self, name: str, client: AgentClient) -> StartCall:
        """Return the call for a node: packed, where its agent takes that and it is shorter."""
        request = self._requests[name]
        packing = next((item for item in PACKINGS if client.hello is not None and item in client.hello.unpacks), None)
        if packing is not None and client.takes_bytes:
            kind, *row = self._rows[name]
            brings = self._pack(kind, packing)
            if len(brings) <= MAX_PUSH_BYTES:
                packed = PackedStartRequest(request.key, packing, [0, *row], self._secrets, self._rendezvous_key)
                return StartCall("start_packed", packed, brings)
        return StartCall("start", replace(request, secrets=self._secrets, rendezvous_key=self._rendezvous_key))

    def _pack(self, kind: int, packing: str) -> bytes:
        if (kind, packing) not in self._packed:
            text = json.dumps(self._kinds[kind], ensure_ascii=False, separators=(",", ":"))
            self._packed[kind, packing] = pack(packing, text.encode(errors="replace"))
        return self._packed[kind, packing]


def _request(
    key: AttemptKey, node: PlannedNode, grace_s: float, log_cap_bytes: int, self_fence_s: float | None
) -> StartRequest:
    specs = [
        ProcessSpec(
            item.name,
            list(item.argv),
            item.cwd,
            dict(item.env),
            item.rank,
            item.warm_start,
            item.is_service,
            list(item.removal),
            item.python_path,
        )
        for item in node.processes
    ]
    files = [TextFile(item.path, item.text, item.executable) for item in node.files]
    return StartRequest(
        key,
        node.node_rank,
        specs,
        list(node.ranks),
        files,
        grace_s=grace_s,
        log_cap_bytes=log_cap_bytes,
        self_fence_s=self_fence_s,
    )


def _health_check(node: PlannedNode, policy: HealthPolicy | None) -> HealthCheck | None:
    if policy is None or node.health is None:
        return None
    return HealthCheck(
        list(node.health.argv),
        node.health.cwd,
        policy.every_s,
        policy.timeout_s,
        policy.failures,
        policy.start_period_s,
    )


def _alone(texts: Sequence[str], kind: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the nodes of one kind have alike, without what only others need."""
    used = sorted({index for _path, index in kind["long"]})
    place = {index: number for number, index in enumerate(used)}
    long = [[path, place[index]] for path, index in kind["long"]]
    return {"texts": [texts[index] for index in used], "kinds": [{**kind, "long": long}]}
