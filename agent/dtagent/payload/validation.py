"""Has a framework's own code read what a job would give it, and tells what it says; starts and changes nothing.

usage: validation.py MARK FILE, the file being JSON: {"checks": […], "argv": […], "world_size": N, "limit_s": S}, in a
directory with the job's generated files. A line MARK and JSON comes out: {check: {"refusal": TEXT} | {"unseen": WHY} |
{}}, without those that do not apply; a text of the agent's own is {"code": CODE, "values": {NAME: VALUE}}. A check
is one of `CHECKS`, or `module:function` of a package, which gets the request and returns the refusal, if any.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

REASON_LIMIT = 2000


def notice(code: str, **values: str) -> dict[str, Any]:
    """Return one of the agent's sentences, whose catalogue is not here."""
    return {"code": code, "values": values}


class NotLookedAtError(Exception):
    """Nothing can be told; the argument is why, as `notice` has it."""


class FrameworkRefusalError(Exception):
    """What a framework would refuse, by what the agent knows of it; the argument is why, as `notice` has it."""


class DoesNotApplyError(Exception):
    """The job does not go by it."""


def torchrun(request: dict[str, Any]) -> Callable[[], object]:
    """Return what has torchrun read its arguments."""
    given = _after(request["argv"], "torchrun.py")
    run = importlib.import_module("torch.distributed.run")
    return lambda: run.config_from_args(run.parse_args(given))


def accelerate(request: dict[str, Any]) -> Callable[[], object]:
    """Return what has accelerate's launcher read its arguments, and the file that they name."""
    given = _after(request["argv"], "accelerate.commands.launch")
    launch = importlib.import_module("accelerate.commands.launch")
    load = importlib.import_module("accelerate.commands.config.config_args").load_config_from_file
    return lambda: load(launch.launch_command_parser().parse_args(given).config_file)


def deepspeed(request: dict[str, Any]) -> Callable[[], object]:
    """Return what has DeepSpeed read its configuration, as at the job's world size."""
    values = _without_auto(_read("ds_config.json"))
    if not any(name in values for name in ("train_batch_size", "train_micro_batch_size_per_gpu")):
        values["train_micro_batch_size_per_gpu"] = 1  # The trainer would fill it in.
    strategy = _read("dttui_config.json").get("strategy") or {}
    stages = [(strategy.get(name) or {}).get("pipeline_stages") for name in ("model_parallel", "pipeline_parallel")]
    pipeline = next(filter(None, (strategy.get("pipeline_parallel_size"), *stages)), 1)
    shared = (strategy.get("tensor_parallel_size") or 1) * pipeline * (values.get("sequence_parallel_size") or 1)
    world_size = request["world_size"]
    runtime = importlib.import_module("deepspeed.runtime.config")
    # It would take one rank for the world, and read the batch sizes by that.
    runtime.dist.get_world_size = lambda *_: world_size
    runtime.dist.get_rank = lambda *_: 0
    return lambda: runtime.DeepSpeedConfig(values, mpu=_Topology(world_size // shared) if shared > 1 else None)


class _Topology:
    """What a script that splits its model tells DeepSpeed of its ranks."""

    def __init__(self, data: int) -> None:
        self._data = data

    def get_data_parallel_world_size(self) -> int:
        return self._data


def megatron(request: dict[str, Any]) -> Callable[[], object]:
    """Return what has Megatron-LM read its arguments; where only megatron-core is there, make its configuration."""
    given = _after(request["argv"], "rank.py")
    script, words = (None, given[2:]) if given[0] == "-m" else (given[0], given[1:])
    if script is not None and os.path.isabs(script):
        sys.path.insert(0, os.path.dirname(script))  # Megatron-LM is often a checkout, with the script in it.
    os.environ.update({"RANK": "0", "WORLD_SIZE": str(request["world_size"])})
    sys.argv = ["megatron", *words]
    try:
        arguments: Any = importlib.import_module("megatron.training.arguments")
    except ModuleNotFoundError:
        return _megatron_core(words)
    # Asked of a GPU, which a check leaves alone; 9 is Hopper.
    arguments.get_device_arch_version = lambda: 9
    calculator = importlib.import_module("megatron.core.num_microbatches_calculator").ConstantNumMicroBatchesCalculator

    def read() -> None:
        args = arguments.validate_args(arguments.parse_args(ignore_unknown_args=True))
        # Training does so right after, and only then is the number of heads looked at, and whether the batch divides.
        arguments.core_transformer_config_from_args(args)
        calculator(args.global_batch_size, args.micro_batch_size, args.data_parallel_size, False, args.rank)

    return read


def _megatron_core(words: list[str]) -> Callable[[], object]:
    config = importlib.import_module("megatron.core.transformer.transformer_config").TransformerConfig
    torch = importlib.import_module("torch")
    pairs = [word[2:].partition("=") for word in words if word.startswith("--")]
    told = {name.replace("-", "_"): value if equals else True for name, equals, value in pairs}
    values = {name: int(told[name]) for name in _MEGATRON_SIZES if str(told.get(name, "")).isdigit()}
    values.update({name: True for name in ("sequence_parallel", "fp16", "bf16") if told.get(name) is True})
    if not {"num_layers", "hidden_size", "num_attention_heads"} <= values.keys():
        raise NotLookedAtError(notice("model-sizes-missing"))
    dtype = torch.bfloat16 if "bf16" in values else torch.float16 if "fp16" in values else torch.float32
    return lambda: config(**values, params_dtype=dtype, pipeline_dtype=dtype)


_MEGATRON_SIZES = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
)


def tensorflow(_request: dict[str, Any]) -> Callable[[], object]:
    """Return what has TensorFlow find its place by TF_CONFIG."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    resolvers = importlib.import_module("tensorflow").distribute.cluster_resolver
    util = importlib.import_module("tensorflow.python.distribute.multi_worker_util")

    def read() -> None:
        found = resolvers.TFConfigClusterResolver()
        util._validate_cluster_spec(found.cluster_spec(), found.task_type, found.task_id)  # noqa: SLF001 - what its strategy calls

    return read


def horovod(_request: dict[str, Any]) -> Callable[[], object]:
    """Return what has Horovod say whether it was built with what its ranks are to talk by."""
    importlib.import_module("horovod")
    config = _read("dttui_config.json")
    backend, protocol = config.get("backend"), (config.get("communication") or {}).get("protocol")
    extension: Any = None
    for name in ("torch", "tensorflow", "mxnet"):  # It is built alike for all that it is built for.
        with contextlib.suppress(ImportError):
            extension = extension or importlib.import_module(f"horovod.{name}")
    if extension is None:
        raise NotLookedAtError(notice("horovod-for-nothing"))

    def read() -> None:
        if protocol == "MPI" and not extension.mpi_built():
            raise FrameworkRefusalError(notice("horovod-without-mpi"))
        if protocol != "MPI" and not extension.gloo_built():
            raise FrameworkRefusalError(notice("horovod-without-gloo"))
        if backend == "nccl" and not extension.nccl_built():
            raise FrameworkRefusalError(notice("horovod-without-nccl"))

    return read


CHECKS: dict[str, Callable[[dict[str, Any]], Callable[[], object]]] = {
    "torchrun": torchrun,
    "accelerate": accelerate,
    "deepspeed": deepspeed,
    "megatron": megatron,
    "tensorflow": tensorflow,
    "horovod": horovod,
}


def look(check: str, request: dict[str, Any]) -> dict[str, Any] | None:
    """Return what one check says; `None` where it does not apply."""
    errors = io.StringIO()
    try:
        module, colon, name = check.partition(":")
        if colon:
            refusal = getattr(importlib.import_module(module), name)(request)
            return {"refusal": str(refusal)[:REASON_LIMIT]} if refusal else {}
        if check not in CHECKS:
            return {"unseen": notice("unknown-check", check=check)}
        read = CHECKS[check](request)
    except DoesNotApplyError:
        return None
    except NotLookedAtError as error:
        return {"unseen": error.args[0]}
    except ModuleNotFoundError as error:
        return {"unseen": notice("module-missing", error=str(error)[:REASON_LIMIT])}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - without the framework, or another one, nothing is known
        return {"unseen": _said(error)}
    try:
        with contextlib.redirect_stderr(errors):
            read()
    except SystemExit:  # A parser of arguments says why, and ends.
        lines = errors.getvalue().strip().splitlines()
        return {"refusal": lines[-1].partition("error: ")[2] or lines[-1] if lines else notice("framework-ends")}
    except FrameworkRefusalError as error:
        return {"refusal": error.args[0]}
    except (AssertionError, ValueError) as error:
        return {"refusal": _said(error)}
    except Exception as error:  # noqa: BLE001 - of the framework's own kind, or a version that names things otherwise
        return {"refusal" if type(error).__module__.startswith(check) else "unseen": _said(error)}
    return {}


def _said(error: BaseException) -> str:
    text = str(error).strip()
    is_plain = isinstance(error, (ValueError, AssertionError)) and text
    return (text if is_plain else f"{type(error).__name__}: {text}")[:REASON_LIMIT]


def _after(argv: list[str], program: str) -> list[str]:
    """Return the words of a command behind a program."""
    for index, word in enumerate(argv):
        if word == program or os.path.basename(word) == program:
            return argv[index + 1 :]
    raise DoesNotApplyError


def _read(name: str) -> dict[str, Any]:
    if not os.path.exists(name):
        raise DoesNotApplyError
    with open(name, encoding="utf-8") as stream:
        body: dict[str, Any] = json.load(stream)
    return body


def _without_auto(values: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without what Hugging Face's trainer fills in before DeepSpeed sees it."""
    return {
        key: _without_auto(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value != "auto"
    }


def main(mark: str, path: str) -> None:
    """Read the request, and answer."""
    with open(path, encoding="utf-8") as stream:
        request = json.load(stream)
    signal.setitimer(signal.ITIMER_REAL, request["limit_s"])  # Whoever asked may be gone, and ends nobody any more.
    with contextlib.redirect_stdout(sys.stderr):  # They print when they are imported.
        found = {check: look(check, request) for check in request["checks"]}
    answer = {check: told for check, told in found.items() if told is not None}
    sys.stdout.write("\n" + mark + json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)  # Threads that a framework has started may keep it from ending.


if __name__ == "__main__":
    # What is imported comes from the interpreter's own directories, not from this one.
    sys.path.pop(0)
    main(*sys.argv[1:])
