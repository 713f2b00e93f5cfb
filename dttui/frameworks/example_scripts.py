"""Which of the shipped scripts trains as a job says, what that is, and which keys of the job it acts upon. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dttui.errors import UsageError
from dttui.frameworks.registry import context_degree, expert_degree
from dttui.i18n import N_, _
from dttui.spec.effects import keys_for_script
from dttui.spec.entry_points import DEFAULT_FRAMEWORK
from dttui.spec.findings import Finding, info, warning
from dttui.spec.known_models import filled
from dttui.spec.models import Job, Model
from dttui.spec.problems import PathKey, format_path

RECIPE: Mapping[str, tuple[str, ...]] = {
    "learning_rate": ("lr", "max_lr"),
    "warmup_steps": ("warm_up_steps", "warmup_iters"),
    "scheduler": ("lr_scheduler", "lr_schedule", "lr_decay_style"),
    "min_lr": ("min_learning_rate",),
    "weight_decay": (),
    "dropout": (),
    "label_smoothing": (),
    "mixup": (),
    "cutmix": (),
    "auto_augment": ("augment",),
    "accumulation_steps": ("gradient_accumulation", "gradient_accumulation_steps", "accumulate"),
    "gradient_clipping": ("max_grad_norm", "clip_grad", "clip_grad_norm"),
    "loss_scaling": ("loss_scale",),
    "mixed_precision": (),
}
"""Settings that scripts read by their recipe.py, each with other words for it."""
_OF_IMAGES = ("mixup", "cutmix", "auto_augment")
_SIZES = frozenset(("layers", "hidden_size", "heads", "seq_length"))
_OF_GPT = _SIZES - {"seq_length"}
_SHARDING = tuple(f"strategy.data_parallel.data_sharding.{name}" for name in ("method", "strategy", "seed"))
_MICRO_BATCH = "strategy.pipeline_parallel.micro_batch_size"
_OF_STRATEGY: tuple[tuple[str, ...], ...] = (
    *(("recomputation",), ("sequence_parallel",), ("compiled",)),
    *(("pipeline_parallel", name) for name in ("micro_batch_size", "schedule", "virtual_stages")),
)
"""Keys of `strategy` that a script has to act upon, whatever else goes by them."""
_NOT_TRAINED_BY = (("version",), ("monitoring", "metrics"))
"""For scripts alone, and for reports: they change nothing of the training."""


@dataclass(frozen=True)
class ExampleScript:
    """What a shipped script trains, and which keys of a job it acts upon."""

    trains: str
    """In English, as catalogues have it."""
    words: frozenset[str] = frozenset()
    """By one of which a model's name says that it is this."""
    settings: frozenset[str] = frozenset()
    """Keys of `settings`."""
    model: frozenset[str] = frozenset()
    """Keys of `model`."""
    precisions: frozenset[str] = frozenset(("fp32", "fp16", "bf16"))
    """Values of `model.precision` in which it computes."""
    others: frozenset[str] = frozenset()
    """Further keys of those that nobody else acts upon, by their whole path."""


def _words(*own: str, without: tuple[str, ...] = ()) -> frozenset[str]:
    """Return a script's own settings, and all of recipe.py by any word but those that are left out."""
    return frozenset((*own, *(word for name in RECIPE if name not in without for word in (name, *RECIPE[name]))))


_GPT, _BERT = frozenset(("gpt", "nanogpt", "mingpt")), frozenset(("bert",))
SCRIPTS: Mapping[str, ExampleScript] = {
    "gpt": ExampleScript(
        trains=N_("a GPT on bytes"),
        words=_GPT,
        settings=_words("steps", "epochs", "seed", "checkpoint_every", without=_OF_IMAGES),
        model=_SIZES,
        others=frozenset(("dataset", *_SHARDING)),
    ),
    "resnet": ExampleScript(
        trains=N_("a ResNet on images"),
        words=frozenset(("resnet",)),
        settings=_words(
            *("layers", "width", "image_size", "classes", "images", "epochs", "momentum"), without=("dropout",)
        ),
        others=frozenset(("strategy.data_parallel.num_workers", *_SHARDING)),
    ),
    "vision": ExampleScript(
        trains=N_("a vision transformer on images"),
        words=frozenset(("vit",)),
        settings=_words("image_size", "patch_size", "classes", "steps", "seed", "checkpoint_every"),
        model=_SIZES - {"seq_length"},
        others=frozenset(_SHARDING[-1:]),
    ),
    "bert": ExampleScript(
        trains=N_("a BERT on bytes"),
        words=_BERT,
        settings=_words(
            *("steps", "seed", "masked_percent", "checkpoint_every"),
            without=(*_OF_IMAGES, "mixed_precision", "loss_scaling", "accumulation_steps"),
        ),
        model=_SIZES,
        precisions=frozenset(("fp32",)),
        others=frozenset(
            (
                *("dataset", _MICRO_BATCH, "strategy.pipeline_parallel.schedule"),
                "strategy.model_parallel.model_splitting.method",
            )
        ),
    ),
    "pytorch-fsdp": ExampleScript(
        trains=N_("a GPT on bytes"),
        words=_GPT,
        settings=_words("steps", "seed", "checkpoint_every", without=(*_OF_IMAGES, "mixed_precision")),
        model=_SIZES,
        others=frozenset(("dataset", "strategy.recomputation")),
    ),
    "deepspeed": ExampleScript(
        trains=N_("a GPT on bytes"),
        words=_GPT,
        settings=frozenset(("steps", "seed", "checkpoint_every")),
        model=_SIZES,
        others=frozenset(("dataset", _MICRO_BATCH)),
    ),
    "horovod": ExampleScript(
        trains=N_("a recurrent network on bytes"),
        settings=_words(
            *("steps", "epochs", "seed", "checkpoint_every"), without=(*_OF_IMAGES, "dropout", "loss_scaling")
        ),
        others=frozenset(("dataset", _SHARDING[-1])),
    ),
    "megatron-lm": ExampleScript(
        trains=N_("a GPT on bytes"),
        words=_GPT,
        model=_SIZES,
        precisions=frozenset(("fp32", "bf16")),
        others=frozenset(
            (
                *("dataset", _MICRO_BATCH, "strategy.sequence_parallel"),
                *(f"framework_options.arguments.{name}" for name in ("lr", "train_iters", "seed")),
                *(f"framework_options.arguments.{name}" for name in ("overlap_grad_reduce", "grad_reduce_in_bf16")),
                *(f"framework_options.arguments.{name}" for name in ("ddp_bucket_size", "ddp_num_buckets")),
            )
        ),
    ),
    "tensorflow": ExampleScript(
        trains=N_("a network of one hidden layer on bytes"),
        settings=frozenset(("steps", "learning_rate", "seed", "checkpoint_every")),
        precisions=frozenset(("fp32",)),
        others=frozenset(("dataset",)),
    ),
}
"""By template."""
_RESNETS = {"50": (3, 4, 6, 3), "101": (3, 4, 23, 3), "152": (3, 8, 36, 3)}
"""Blocks of each stage (He et al. 2016, table 1), by the first number in the name."""
_FRAMEWORKS = tuple(name for name in SCRIPTS if name not in ("gpt", "resnet", "vision", "bert"))
_CONVOLUTIONS = frozenset(
    ("resnet", "resnext", "wideresnet", "convnext", "convnet", "cnn", "densenet", "efficientnet", "mobilenet", "vgg")
)
_PATCHES = frozenset(("vit", "deit", "beit", "swin"))


def choose_script(job: Job) -> tuple[str, str]:
    """Return the framework and the template whose script trains as the job says.

    Raises:
        UsageError: no script does.
    """
    strategy = job.strategy
    tensor, pipeline = strategy.tensor_parallel_size or 1, strategy.pipeline_degree or 1
    splits_by_stage = pipeline > 1 or (strategy.type == "pipeline_parallel" and tensor == 1)
    usual = "pytorch-fsdp" if strategy.zero_stage else DEFAULT_FRAMEWORK
    of_images = _template_of_images(job)
    if job.framework in (None, DEFAULT_FRAMEWORK) and of_images is not None:
        _refuse_split_images(tensor, pipeline)
    framework = job.framework or ("megatron-lm" if tensor > 1 else usual)
    if framework not in (*_FRAMEWORKS, DEFAULT_FRAMEWORK):
        message = _("no script can be written for framework: {name}").format(name=framework)
        names = ", ".join(sorted((*_FRAMEWORKS, DEFAULT_FRAMEWORK)))
        raise UsageError(message, _("There are scripts for: {names}.").format(names=names))
    _refuse_degrees(job.model_copy(update={"framework": framework}), tensor, pipeline)
    name = framework if framework != DEFAULT_FRAMEWORK else "bert" if splits_by_stage else of_images or "gpt"
    if name == "bert":
        _check_stages(job, pipeline)
    if name != "gpt":
        _refuse_shares(job)
    return framework, name


def resnet_blocks(name: str) -> tuple[int, ...] | None:
    """Return the blocks of each stage of a ResNet by its name; `None` for one that is not known, or a wide one."""
    number = re.search(r"\d+", name)
    return _RESNETS.get(number[0]) if number is not None and "wide" not in _name_words(name) else None


def check_script(job: Job, name: str) -> Iterator[Finding]:
    """Yield what the script of a template does not do that the job says: another model, keys that it does not read."""
    script = SCRIPTS[name]
    trains = _(script.trains)
    path: PathKey = ("model", "name")
    called = job.model.name if job.model is not None else None
    if called is None:
        message = _("the job does not name its model: train.py trains {what}").format(what=trains)
        yield info("script-model", format_path(path), message, _("Write model.name, or put yours into train.py."))
    elif not script.words & _name_words(called):
        message = _("train.py trains {what}, and not {name}").format(what=trains, name=called)
        yield warning("script-model", format_path(path), message, _("Put that model in its place."), path=path)
    elif (sizes := _unknown_sizes(job, script, called)) is not None:
        message = _("train.py trains {what} of other sizes than {name}").format(what=trains, name=called)
        hint = _("Write {keys}, or put that model in its place.").format(keys=sizes)
        yield warning("script-model", format_path(path), message, hint, path=path)
    unread = [key for key in _said(job) if not _is_read(job, script, key)]
    if unread:
        message = _("the script that was written does not act upon: {keys}")
        told = message.format(keys=", ".join(map(format_path, unread)))
        yield warning("not-in-script", format_path(unread[0]), told, _("Add it to the script by hand."), path=unread[0])


def _unknown_sizes(job: Job, script: ExampleScript, called: str) -> str | None:
    """Return the keys that could say the sizes of a model with a number in its name; `None` where sizes are known."""
    if not re.search(r"\d", called):
        return None
    if "resnet" in script.words:
        is_known = resnet_blocks(called) is not None or bool({"layers", "width"} & job.settings.keys())
        return None if is_known else "settings.layers, settings.width"
    if script.words is not _GPT:
        return None
    said = {name for name, value in filled(job.model or Model()) if value is not None}
    return None if _OF_GPT & (said | job.settings.keys()) else "model.layers, model.hidden_size, model.heads"


def _said(job: Job) -> Iterator[PathKey]:
    """Yield the keys of a job that its script has to act upon, or else nothing comes of them in the training."""
    if job.dataset not in (None, "none"):
        yield ("dataset",)
    for path in _OF_STRATEGY:
        value: Any = job.strategy
        for name in path:
            value = getattr(value, name, None)
        if value not in (None, False, "none"):
            yield ("strategy", *path)
    if job.framework == "megatron-lm":  # Its arguments are the script's.
        if job.strategy.zero_stage:
            yield ("strategy", "zero_stage")
        arguments = job.framework_options.get("arguments")
        for name in arguments if isinstance(arguments, Mapping) else ():
            yield ("framework_options", "arguments", str(name))
    yield from (path for path in keys_for_script(job) if path not in _NOT_TRAINED_BY)
    if job.model is not None:
        yield from (
            ("model", name) for name, value in job.model if value is not None and name not in ("name", "config")
        )
    # Without dropout every script trains that knows none.
    yield from (("settings", name) for name, value in job.settings.items() if name != "dropout" or value)


def _is_read(job: Job, script: ExampleScript, path: PathKey) -> bool:
    if path == ("model", "precision"):
        return job.model is not None and job.model.precision in script.precisions
    if path[0] in ("model", "settings"):
        return path[1] in (script.model if path[0] == "model" else script.settings)
    return format_path(path).replace("-", "_") in script.others


def _name_words(name: str) -> frozenset[str]:
    """Return the words of a name, in small letters and without numbers: `ResNet-50` → resnet."""
    return frozenset(re.findall(r"[^\W\d_]+", name.casefold()))


def _template_of_images(job: Job) -> str | None:
    """Return the template that trains on images where the model's name says so, or that of a job without a model."""
    named = job.model.name if job.model is not None else None
    words = _name_words(named or job.name)
    if words & _CONVOLUTIONS:
        return "resnet"
    return "vision" if words & _PATCHES or words >= {"vision", "transformer"} else None


def _refuse_split_images(tensor: int, pipeline: int) -> None:
    """Refuse to split what only language models can be split by."""
    for key, value in (("strategy.tensor_parallel_size", tensor), ("strategy.pipeline_parallel_size", pipeline)):
        if value > 1:
            message = _("no script here splits a model of images: {key} is {value}").format(key=key, value=value)
            raise UsageError(message, _("Leave {key} out.").format(key=key))


def _refuse_degrees(job: Job, tensor: int, pipeline: int) -> None:
    """Refuse the ways of splitting that the scripts of a framework do not know."""
    strategy, framework = job.strategy, job.framework
    zero, splits = strategy.zero_stage or 0, framework == "megatron-lm"
    asked = (
        ("strategy.tensor_parallel_size", tensor, tensor if splits else 1),
        ("strategy.pipeline_parallel_size", pipeline, pipeline if splits or framework == DEFAULT_FRAMEWORK else 1),
        ("strategy.zero_stage", zero, zero if splits or framework in ("pytorch-fsdp", "deepspeed") else 0),
        (_("the context degree"), context_degree(job), 1),
        (_("the expert degree"), expert_degree(job), 1),
    )
    for key, value, most in asked:
        if value > most:
            message = _("the script for {framework} does not split so: {key} is {value}")
            other = "pytorch-fsdp" if key.endswith("zero_stage") else "megatron-lm"
            hint = _("Write framework: {name}.").format(name=other)
            if splits:
                hint = _("Have run.script be Megatron-LM's own pretrain_gpt.py.")
            raise UsageError(message.format(framework=framework, key=key, value=value), hint)


def _refuse_shares(job: Job) -> None:
    data = job.strategy.data_parallel
    if data is not None and not data.has_equal_shares:
        message = _("the script gives all ranks as many samples, and the job says shares")
        raise UsageError(message, _("Leave {key} out.").format(key="shares"))


def _check_stages(job: Job, stages: int) -> None:
    pipeline = job.strategy.pipeline_parallel
    schedule = pipeline.schedule if pipeline is not None else None
    if schedule not in (None, "1F1B", "GPipe"):
        message = _("the script has one stage a rank, and the schedule {name} needs several").format(name=schedule)
        raise UsageError(message, _("Write schedule: 1F1B or GPipe, or framework: megatron-lm."))
    layers = job.model.layers if job.model is not None else None
    if layers is not None and layers < stages:
        message = _("{layers} layers make no {stages} stages").format(layers=layers, stages=stages)
        raise UsageError(message, _("Write fewer stages, or a model of more layers."))
