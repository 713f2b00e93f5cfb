"""A start whose larger part came packed, as the request that it stands for."""

from __future__ import annotations

import json

from dtagent.calls import decode_params
from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.alike import unfold
from dtagent.protocol.jobs import PackedStartRequest, StartRequest
from dtagent.protocol.packing import unpack
from dtagent.protocol.rpc import ErrorCode


def unpacked(request: PackedStartRequest) -> StartRequest:
    """Return the request. Blocking. Raises RpcError INVALID_PARAMS where it makes no sense."""
    try:
        alike = json.loads(unpack(request.packing, request.data or b""))
        (params,) = unfold({**alike, "rows": [request.row]})
    except (ValueError, TypeError, RecursionError) as error:
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.PACKED_DOES_NOT_FIT(error=str(error))) from error
    own = {"secrets": request.secrets, "rendezvous_key": request.rendezvous_key}
    started: StartRequest = decode_params("start", StartRequest, {**params, **own})
    return started
