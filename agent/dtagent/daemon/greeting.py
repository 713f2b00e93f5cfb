"""The call `hello`: who serves here, and which version of the protocol both sides speak."""

from __future__ import annotations

import os
import time

from dtagent import __version__
from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.greeting import HelloReply, HelloRequest
from dtagent.protocol.packing import PACKINGS
from dtagent.protocol.rpc import VERSIONS, ErrorCode
from dtagent.system import processes


async def greet(request: HelloRequest) -> HelloReply:
    """Agree on the newest version that both speak. Raises RpcError VERSION where there is none."""
    common = [version for version in request.versions if version in VERSIONS]
    if not common:
        is_old = max(request.versions, default=0) > max(VERSIONS)
        said = sentences.NO_COMMON_VERSION(
            version=__version__,
            versions=str(list(VERSIONS)),
            client=request.client or sentences.UNNAMED_CLIENT(),
            wanted=str(request.versions),
            remedy=sentences.UPGRADE_AGENT() if is_old else sentences.UPGRADE_DTTUI(),
        )
        raise RpcError(ErrorCode.VERSION, said, {"versions": list(VERSIONS), "agent_version": __version__})
    return HelloReply(
        max(common),
        __version__,
        os.uname().nodename,
        os.getpid(),
        processes.boot_id(),
        time.time(),
        takes_bytes=True,
        ends_services=True,
        seals_rendezvous=True,
        gathers_rounds=True,
        tells_groups=True,
        removes_containers=True,
        fences_itself=True,
        keeps_line=True,
        takes_named_gpus=True,
        checks_health=True,
        tells_call_times=True,
        searches_metrics=True,
        keeps_directories=True,
        unpacks=list(PACKINGS),
    )
