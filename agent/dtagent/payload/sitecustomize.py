"""Read by each Python below a job's own launcher, as PYTHONPATH leads here: makes a rank of those that are one.

Another module of this name that the interpreter would have read instead is read after it.
"""

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import types


def _adopt() -> None:
    if "DTTUI_OWN_RANKS" not in os.environ or "LOCAL_RANK" not in os.environ:
        return
    _beside("own_rank").adopt(_beside)


def _beside(name: str) -> types.ModuleType:
    """Return a file beside this one as a module; not by a name that the script might import."""
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"dttui_{name}", path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  # of a file there is one
    spec.loader.exec_module(module)  # type: ignore[union-attr]  # and it has a loader
    return module


def _read_the_next() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


with contextlib.suppress(Exception):  # The script is to run without it as well.
    _adopt()
_read_the_next()
