"""What speaks against forking a command line from a process that has imported torch already."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

from dtagent.payload.forking.channel import notice

# fmt: off
SENSITIVE = (
    "ACC_", "ATEN_", "C10_", "COMPILE_", "CUDA_", "CUBLAS_", "DNNL_", "FX_", "GFORTRAN_", "GLIBC_TUNABLES", "GOMP_",
    "GOTO_", "HOME", "KINETO_", "KMP_", "LANG", "LC_", "LD_", "LOGLEVEL", "MALLOC_", "MKL", "NPY_", "NUMPY_", "OMP_",
    "ONEDNN_", "OPENBLAS_", "OPENSSL_", "PYTHON", "PYTORCH_", "TORCH",
)
# fmt: on
"""What the names of variables begin with that Python, torch and what they load read when they start."""
LATE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TORCHELASTIC_", "TORCH_NCCL_", "TORCH_FR_", "PYTHON_EXEC")
"""Those of them that are read later, or by torchrun itself."""
_BORN_WITH = dict(os.environ)


def objection(argv: list[str], env: dict[str, str]) -> dict[str, Any] | None:
    """Return why a command line has to be executed, as `notice` does; `None` where it may be forked."""
    if os.path.realpath(argv[0]) != os.path.realpath(sys.executable) or argv[0] != sys.executable:
        return notice("warm-other-python", program=argv[0], python=sys.executable)
    at = 2 if argv[1] == "-u" else 1
    if argv[at].startswith("-"):
        return notice("warm-option", option=argv[at])
    different = sorted(
        name for name in {*env, *_BORN_WITH} if is_sensitive(name) and env.get(name) != _BORN_WITH.get(name)
    )
    if different:
        return notice("warm-other-environment", names=", ".join(different[:5]))
    if any(not os.path.isabs(path) for path in env.get("PYTHONPATH", "").split(":") if path):
        return notice("warm-relative-path")
    if os.path.basename(argv[at]) == "rank.py":
        script = argv[at + 1]
        place = os.getcwd() if script == "-m" else os.path.dirname(os.path.realpath(script))
        hidden = _shadowed(place)
        if hidden:
            return notice("warm-hidden-modules", path=place, names=", ".join(hidden[:5]))
    return None


def _shadowed(place: str) -> list[str]:
    """Return the imported modules that a directory at the front of `sys.path` would have provided instead."""
    found = set()
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            name, _, suffix = entry.name.partition(".")
            loaded = sys.modules.get(name)
            if loaded is None or name == "__main__" or name in sys.builtin_module_names:
                continue
            is_module = suffix in ("py", "pyc") or suffix.endswith("so")
            if is_module or (not suffix and os.path.exists(os.path.join(entry.path, "__init__.py"))):
                found.add(name)
    return sorted(found)


def is_sensitive(name: str) -> bool:
    """Whether a variable is read when Python, torch or what they load start."""
    return name.startswith(SENSITIVE) and not name.startswith(LATE)
