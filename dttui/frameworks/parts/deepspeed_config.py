"""The `ds_config.json` of a job: what its sections and options say by DeepSpeed's own names, and whether that agrees.

It ends with the block `distributed` of the seed's DeepSpeed chapter: DeepSpeed's own config class reads a file with it,
and takes the world size from the process group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from dttui.frameworks.base import JobLayout
from dttui.frameworks.bundle import PlannedFile
from dttui.frameworks.parts.batches import Batches, nearest_parts, nearest_totals, solve
from dttui.frameworks.parts.collective_settings import in_vain
from dttui.frameworks.parts.deepspeed_options import DeepSpeedOptions
from dttui.i18n import _
from dttui.spec.deepspeed_keys import BATCH_KEYS
from dttui.spec.findings import Finding, error, info, warning
from dttui.spec.problems import PathKey, format_path

CONFIG_FILE = "ds_config.json"
"""What DeepSpeed reads, relative to the attempt's directory."""
_PRECISIONS = {"fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
"""What is enabled, by the model's precision; full precision has no key."""
_SENT = ("fp16", "bf16")
"""What DeepSpeed can send gradients as, by the job's word and its own (`communication_data_type`)."""
_TESTED = ("Adagrad", "Adam", "AdamW", "Lion", "Muon")
"""Optimizers that ZeRO takes as they are (ZERO_SUPPORTED_OPTIMIZERS of deepspeed/runtime/zero/utils.py)."""
_CONFIG: PathKey = ("framework_options", "config")
_PLACES: dict[str, PathKey] = {
    "train_batch_size": ("strategy", "data_parallel", "batch_size"),
    "train_micro_batch_size_per_gpu": ("strategy", "pipeline_parallel", "micro_batch_size"),
    "gradient_accumulation_steps": ("framework_options", "gradient_accumulation_steps"),
}
"""Where a job says what DeepSpeed calls so."""


def config_file(layout: JobLayout) -> PlannedFile:
    """Return the file, the same on every node."""
    return PlannedFile(path=CONFIG_FILE, text=json.dumps(_document(layout), ensure_ascii=False, indent=2) + "\n")


def check_config(layout: JobLayout) -> list[Finding]:
    """Return what in the job and its options DeepSpeed would refuse, or quietly do otherwise."""
    if layout.world_size % _model_ranks(layout):
        return []  # The degrees do not fit the ranks, which is an error of the plan already.
    checks = (_disagreements, _check_batches, _check_zero, _check_precision, _announce)
    return [finding for check in checks for finding in check(layout)]


def options_of(layout: JobLayout) -> DeepSpeedOptions:
    """Return the options of a job."""
    return layout.options_as(DeepSpeedOptions)


def _document(layout: JobLayout) -> dict[str, Any]:
    options = options_of(layout)
    is_open = options.leaves_open
    clipping = options.gradient_clipping
    document: dict[str, Any] = {
        **_batch_sizes(layout),
        # Its default has changed between versions.
        "gradient_clipping": clipping if clipping is not None else "auto" if is_open else 1.0,
        "zero_optimization": _zero(layout),
        **_precision(layout),
    }
    if options.optimizer is not None:
        params = dict(options.optimizer.params)
        if layout.backend != "nccl" and options.optimizer.type in ("Adam", "AdamW", "Muon"):
            params = {**params, "torch_adam": True}  # Its own are compiled for GPUs.
        document["optimizer"] = {"type": options.optimizer.type, "params": params}
        if _stage(layout) and options.optimizer.type not in _TESTED:
            document["zero_allow_untested_optimizer"] = True
    if (compression := layout.job.communication.compression) in _SENT:
        document["communication_data_type"] = compression
    if options.scheduler is not None:
        document["scheduler"] = options.scheduler.model_dump()
    if _has_autotp(layout):
        document["tensor_parallel"] = {"autotp_size": layout.job.strategy.tensor_parallel_size}
    own = {key: value for key, value in options.config.items() if key not in BATCH_KEYS}
    distributed = {"world_size": layout.world_size, "nodes": len(layout.nodes)}
    return {**_merged(document, own), "distributed": distributed}


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with all that `over` says, in blocks key by key."""
    merged = dict(base)
    for key, value in over.items():
        below = base.get(key)
        merged[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _stage(layout: JobLayout) -> int:
    return layout.job.strategy.zero_stage or 0


def _zero(layout: JobLayout) -> dict[str, Any]:
    options, stage = options_of(layout), _stage(layout)
    block: dict[str, Any] = {"stage": stage}
    for name, device in (("offload_optimizer", options.offload_optimizer), ("offload_param", options.offload_param)):
        if device != "none":
            block[name] = {"device": device, **({"nvme_path": options.nvme_path} if device == "nvme" else {})}
    overlaps = options.overlap_comm if options.overlap_comm is not None else layout.job.communication.overlap
    if overlaps is not None:
        block["overlap_comm"] = overlaps
    if stage and layout.bucket_bytes is not None:
        # The job counts bytes, and DeepSpeed elements.
        elements = max(layout.bucket_bytes // (2 if _enabled(layout) else 4), 1)
        block["reduce_bucket_size"] = elements
        asked = layout.job.communication.all_reduce
        # Gathering goes beside no computing: the link's size is none for it. DeepSpeed wants an even number there.
        if stage < 3 and asked is not None and asked.buffer_size is not None:
            block["allgather_bucket_size"] = max(elements // 2 * 2, 2)
    return block


def _enabled(layout: JobLayout) -> str | None:
    """Return `fp16` or `bf16`; `None` for full precision."""
    model = layout.job.model
    return _PRECISIONS.get(model.precision or "") if model is not None else None


def _precision(layout: JobLayout) -> dict[str, Any]:
    enabled, model = _enabled(layout), layout.job.model
    if enabled is not None:
        return {enabled: {"enabled": True}}
    is_open = model is None or model.precision is None
    if is_open and options_of(layout).leaves_open:
        return {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}
    return {}


def _has_autotp(layout: JobLayout) -> bool:
    return (layout.job.strategy.tensor_parallel_size or 1) > 1 and options_of(layout).tensor_parallel == "autotp"


def _model_ranks(layout: JobLayout) -> int:
    """Return over how many ranks one copy of the model, or one sequence, is spread."""
    strategy = layout.job.strategy
    sequence = options_of(layout).config.get("sequence_parallel_size")
    sizes = (strategy.tensor_parallel_size, strategy.pipeline_degree, sequence if type(sequence) is int else None)
    return prod(size or 1 for size in sizes)


def _data_degree(layout: JobLayout) -> int:
    return max(layout.world_size // _model_ranks(layout), 1)


def _given(layout: JobLayout) -> dict[str, tuple[int, PathKey]]:
    """Return the sizes of batches that the job or its `config` gives, and where."""
    options = options_of(layout)
    data, stages = layout.job.strategy.data_parallel, layout.job.strategy.pipeline_parallel
    said = (
        data.batch_size if data is not None else None,
        stages.micro_batch_size if stages is not None else None,
        options.gradient_accumulation_steps,
    )
    given = {key: (value, _PLACES[key]) for key, value in zip(BATCH_KEYS, said, strict=True) if value is not None}
    own = {key: (options.config[key], (*_CONFIG, key)) for key in BATCH_KEYS if type(options.config.get(key)) is int}
    return {**own, **given}


def _solved(layout: JobLayout) -> Batches | None:
    total, micro, steps = (_given(layout).get(key, (None,))[0] for key in BATCH_KEYS)
    stages = layout.job.strategy.pipeline_degree or 1
    return solve(_data_degree(layout), total=total, micro=micro, steps=steps, stages=stages)


def _batch_sizes(layout: JobLayout) -> dict[str, Any]:
    """Return the three sizes. Under AutoTP the first is left to DeepSpeed, which counts every rank of a copy there."""
    given, solved = _given(layout), _solved(layout)
    if options_of(layout).leaves_open:
        return {key: given[key][0] if key in given else "auto" for key in BATCH_KEYS}
    if solved is None:
        return {}
    sizes = dict(zip(BATCH_KEYS, (solved.total, solved.micro, solved.steps), strict=True))
    if _has_autotp(layout):
        del sizes["train_batch_size"]
    return sizes


def _check_batches(layout: JobLayout) -> list[Finding]:
    given, degree = _given(layout), _data_degree(layout)
    key, micro_key, steps_key = BATCH_KEYS
    if not {key, micro_key} & given.keys():
        if options_of(layout).leaves_open:
            return []
        told = _("nothing says how many samples a step takes: one a rank in each pass, {count} in all")
        solved = _solved(layout)
        subject = format_path(_PLACES[key])
        hint = _("Write strategy.data_parallel.batch_size, a multiple of {degree}.").format(degree=degree)
        return [warning("batch-size", subject, told.format(count=solved.total if solved else degree), hint)]
    if _solved(layout) is not None:
        return []
    total, path = given[key]
    micro, steps = (given.get(name, (None, None))[0] for name in (micro_key, steps_key))
    factors = [_("micro-batch {size}").format(size=micro)] if micro is not None else []
    factors += [_("{count} passes").format(count=steps)] if steps is not None else []
    factors.append(_("data {degree}").format(degree=degree))
    message = _("a step of {total} samples cannot be made up of {factors}")
    message = message.format(total=total, factors=" × ".join(factors))
    fitting = {path: nearest_totals(degree, total=total, micro=micro, steps=steps)}
    for name, part, other in ((micro_key, micro, steps), (steps_key, steps, micro)):
        if part is not None:
            fitting[given[name][1]] = nearest_parts(degree, total=total, part=part, other=other)
    either = _(" or ")
    choices = [f"{format_path(place)}: {either.join(map(str, sizes))}" for place, sizes in fitting.items() if sizes]
    hint = _("What fits is {choices}.").format(choices="; ".join(choices))
    return [error("batch-size", format_path(path), message, hint, path=path)]


def _disagreements(layout: JobLayout) -> Iterator[Finding]:
    """Yield where `config` says something else than the job, which plans and estimates go by."""
    strategy, config = layout.job.strategy, options_of(layout).config
    given = _given(layout)
    degree = strategy.tensor_parallel_size or 1
    expected: list[tuple[PathKey, object, PathKey]] = [
        *(((key,), given[key][0], given[key][1]) for key in BATCH_KEYS if key in given),
        (("zero_optimization", "stage"), _stage(layout), ("strategy", "zero_stage")),
        (("tensor_parallel", "autotp_size"), degree, ("strategy", "tensor_parallel_size")),
        (("data_parallel_size",), _data_degree(layout), ("strategy", "data_parallel_size")),
    ]
    talk = layout.job.communication
    if talk.compression in _SENT:
        expected.append((("communication_data_type",), talk.compression, ("communication", "compression")))
    if talk.overlap is not None:
        expected.append((("zero_optimization", "overlap_comm"), talk.overlap, ("communication", "overlap")))
        if options_of(layout).overlap_comm not in (None, talk.overlap):
            message = _("this is not what {other} says; give it once").format(other="communication.overlap")
            option = ("framework_options", "overlap_comm")
            yield error("framework-option", format_path(option), message, path=option)
    if layout.job.model is not None and layout.job.model.precision is not None:
        is_so = ((name, _enabled(layout) == name) for name in ("fp16", "bf16"))
        expected += [((name, "enabled"), value, ("model", "precision")) for name, value in is_so]
    for keys, value, place in expected:
        own: object = config
        for key in keys:
            own = own.get(key) if isinstance(own, dict) else None
        if own is None or own in (value, "auto"):
            continue
        path = (*_CONFIG, *keys)
        message = _("this is not what {other} says; give it once").format(other=format_path(place))
        yield error("framework-option", format_path(path), message, path=path)


def _check_zero(layout: JobLayout) -> Iterator[Finding]:
    options, stage = options_of(layout), _stage(layout)
    needed = {"cpu": 1, "nvme": 3}.get(options.offload_optimizer, 0), 0 if options.offload_param == "none" else 3
    for name, least in zip(("offload_optimizer", "offload_param"), needed, strict=True):
        if stage < least:
            message = _("{key}: {device} needs ZeRO stage {least}, and the job has {stage}")
            message = message.format(key=name, device=getattr(options, name), least=least, stage=stage)
            path = ("framework_options", name)
            yield error("zero-stage", format_path(path), message, _("Write strategy.zero_stage."), path=path)
    if stage >= 2 and (layout.job.strategy.pipeline_degree or 1) > 1:
        message = _("DeepSpeed's pipelines go with ZeRO stage 0 or 1, not {stage}").format(stage=stage)
        hint = _("Write zero_stage: 1, or leave the pipeline out.")
        yield error("zero-stage", "strategy.zero_stage", message, hint)


def _check_precision(layout: JobLayout) -> Iterator[Finding]:
    said = layout.job.model.precision if layout.job.model is not None else None
    if said == "fp8":
        message = _("DeepSpeed's configuration has no fp8: it is told bf16")
        yield warning("precision", "model.precision", message, _("Let the script cast layers to fp8 by itself."))
    if said == "fp16" and layout.backend != "nccl":
        message = _("DeepSpeed refuses fp16 on CPUs that cannot compute in it")
        yield warning("precision", "model.precision", message, _("Every CPU can do bf16."))
    document = _document(layout)
    if all(document.get(kind, {}).get("enabled") is True for kind in ("fp16", "bf16")):
        path = (*_CONFIG, "bf16", "enabled")
        message = _("fp16 and bf16 cannot both be enabled")
        yield error("framework-option", format_path(path), message, path=path)


def _announce(layout: JobLayout) -> Iterator[Finding]:
    """Tell what a person may wonder at."""
    talk = layout.job.communication
    if not _stage(layout):
        if talk.all_reduce is not None and talk.all_reduce.buffer_size is not None:
            message = _("without ZeRO DeepSpeed reduces 500,000,000 elements at a time: it has buckets from stage 1 on")
            yield in_vain(f"{talk.all_reduce_place}.buffer_size", message)
        if talk.overlap is not None:
            yield in_vain("overlap", _("without ZeRO DeepSpeed reduces after the backward pass"))
    elif talk.overlap and (layout.job.strategy.pipeline_degree or 1) > 1:
        yield in_vain("overlap", _("DeepSpeed's pipelines reduce after the backward pass, whatever they are told"))
    if _has_autotp(layout):
        message = _("DeepSpeed's AutoTP splits the tensors; it knows the models of Hugging Face")
        hint = _("Where the script splits its model itself: framework_options.tensor_parallel: script.")
        yield info("autotp", "strategy.tensor_parallel_size", message, hint)
    message = _("at its first start on a host DeepSpeed compiles operators, which takes minutes and a C++ compiler")
    yield info("deepspeed-build", "framework", message, _("It keeps them in ~/.cache/torch_extensions."))
