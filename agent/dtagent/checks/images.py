"""Whether a container engine can be used here, and has an image. It blocks; nothing is fetched and nothing started."""

from __future__ import annotations

import os
import shutil
import subprocess

from dtagent.errors import RpcError
from dtagent.protocol import sentences
from dtagent.protocol.probes import ImageReply, ImageRequest
from dtagent.protocol.rpc import ErrorCode
from dtagent.protocol.said import Said

TIMEOUT_S = 15.0
"""An engine that has not run since the boot takes some seconds."""
DETAIL_LIMIT = 300
_KNOWN = ("docker", "podman")
_MISSING = ("no such image", "image not known", "no such object")
"""What engines say of an image that they do not have."""


def look_for(request: ImageRequest) -> ImageReply:
    """Tell whether the image is here. Raises RpcError for an engine that nobody here knows to ask."""
    if request.engine not in (*_KNOWN, "apptainer"):
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NO_ENGINE(engine=repr(request.engine[:100])))
    if request.image.startswith("-") or "\0" in request.image:
        raise RpcError(ErrorCode.INVALID_PARAMS, sentences.NO_IMAGE(image=repr(request.image[:100])))
    engine = shutil.which(request.engine)
    if engine is None:
        return ImageReply(has_engine=False)
    if request.engine not in _KNOWN:
        is_path = os.path.isabs(request.image)
        return ImageReply(has_engine=True, has_image=os.path.exists(request.image) if is_path else None)
    argv = [engine, "image", "inspect", "--format", "{{.Id}}", request.image]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return ImageReply(has_engine=True, detail=sentences.NO_ANSWER(seconds=f"{TIMEOUT_S:g}"))
    except OSError as error:
        return ImageReply(has_engine=True, detail=Said(str(error)))
    if done.returncode == 0:
        lines = done.stdout.decode(errors="replace").split()
        return ImageReply(has_engine=True, has_image=True, image_id=lines[0][:100] if lines else None)
    said = done.stderr.decode(errors="replace").strip()
    is_missing = any(word in said.lower() for word in _MISSING)
    return ImageReply(has_engine=True, has_image=False if is_missing else None, detail=Said(said[-DETAIL_LIMIT:]))
