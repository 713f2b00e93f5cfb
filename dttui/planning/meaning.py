"""What a job says that contradicts itself, that nobody knows, or that its script alone acts upon. Pure.

It needs neither nodes nor a framework: `validate` tells it as a plan does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dttui.i18n import N_, _
from dttui.spec.conditions import is_measured, measured_names, reported_names
from dttui.spec.effects import keys_for_script
from dttui.spec.findings import Finding, info, warning
from dttui.spec.models import Job, Strategy
from dttui.spec.problems import PathKey, did_you_mean, format_path, shown

SHARDING_METHODS = ("random", "random_shuffle", "sequential")
"""How the templates' scripts share data out; seeds 000 and 001 have no others."""
SPLITTING_METHODS = ("layer_wise",)
"""How a model is cut where a script follows seed 000."""
SEED_METRICS = ("throughput", "utilization", "loss")
"""Of seed 000, 2.6 and 4, those that dttui shows: steps, samples or tokens a second; `gpu.utilization`; the loss."""
_OF_SCRIPTS = {
    "latency": N_("dttui shows steps a second, whose inverse it is."),
    "bubble_time": N_("`dttui estimate` tells which share of a step it expects to be that."),
}
"""The others of the seed, which scripts alone can report, and what there is instead."""
DASHBOARD_KEYS = (
    *("type", "name", "title", "description", "url", "host", "port", "dir", "log_dir", "logdir", "path", "refresh"),
    *(
        "interval",
        "panels",
        "metrics",
        "project",
        "entity",
        "group",
        "run",
        "run_name",
        "experiment",
        "job_type",
        "tags",
    ),
    *("notes", "mode", "theme", "workspace", "organization", "tracking_uri", "datasource", "uid"),
)
"""Settings of TensorBoard, W&B, MLflow, Grafana and their like, and of the seeds' dashboards."""
_TEXTS = ("type", "name", "title", "host", "dir", "log_dir", "logdir", "project", "entity")
_HIGHEST_PORT = 65535


def check_meaning(job: Job) -> list[Finding]:
    """Return what there is to say of a job's words, whatever it runs on."""
    return [
        *_check_type(job.strategy),
        *_check_methods(job.strategy),
        *_check_metrics(job),
        *_check_dashboard(job),
        *_tell_for_script(job),
    ]


def _check_type(strategy: Strategy) -> Iterator[Finding]:
    """Name what is said beside a type that it contradicts; a type that nobody wrote contradicts nothing."""
    if "type" not in strategy.model_fields_set or strategy.type == "hybrid":
        return
    kinds = dict(_kinds(strategy))
    others = {key: kind for key, kind in kinds.items() if kind != strategy.type and not _belongs(key, strategy.type)}
    key, kind = next(iter(others.items()), (None, None))
    if key is not None:
        message = _("strategy.type is {type}, and {key} makes it {kind}").format(
            type=strategy.type, key=format_path(("strategy", *key)), kind=kind
        )
        fits = "hybrid" if strategy.type in kinds.values() or len(set(others.values())) > 1 else kind
        hint = _("Write type: {type}, or leave the key out.").format(type=fits)
        yield warning("type-contradicted", "strategy.type", message, hint, path=("strategy", *key))
    elif strategy.type == "pipeline_parallel" and strategy.pipeline_degree == 1:
        yield _undone(strategy.type, strategy.pipeline_path, 1)
    elif strategy.type == "model_parallel" and not kinds and strategy.tensor_parallel_size == 1:
        yield _undone(strategy.type, ("strategy", "tensor_parallel_size"), 1)


def _undone(kind: str, path: PathKey, degree: int) -> Finding:
    message = _("strategy.type is {type}, and {key}: {degree} splits nothing")
    message = message.format(type=kind, key=format_path(path), degree=degree)
    hint = _("Write type: {type}, or leave the key out.").format(type="data_parallel")
    return warning("type-contradicted", "strategy.type", message, hint, path=path)


def _kinds(strategy: Strategy) -> Iterator[tuple[PathKey, str]]:
    """Yield the keys that split the model, and the kind of parallelism that each makes."""
    model, pipeline = strategy.model_parallel, strategy.pipeline_parallel
    if (strategy.tensor_parallel_size or 1) > 1:
        yield ("tensor_parallel_size",), "model_parallel"
    if model is not None and model.model_splitting is not None:
        yield ("model_parallel", "model_splitting"), "model_parallel"
    for key, degree in strategy.pipeline_spellings.items():
        if degree > 1:
            yield key, "pipeline_parallel"
    if pipeline is not None and pipeline.schedule is not None:
        yield ("pipeline_parallel", "schedule"), "pipeline_parallel"


def _belongs(key: PathKey, kind: str) -> bool:
    """Whether a key goes with a kind beside its own: stages are a way to split a model, in seed 000's own section."""
    if kind == "pipeline_parallel":
        return key == ("model_parallel", "model_splitting")
    return kind == "model_parallel" and key[0] in ("model_parallel", "pipeline_parallel_size")


def _check_methods(strategy: Strategy) -> Iterator[Finding]:
    """Name methods that no script of dttui's knows: a script of the person's may."""
    data, model = strategy.data_parallel, strategy.model_parallel
    sharding = data.data_sharding if data is not None else None
    splitting = model.model_splitting if model is not None else None
    at: PathKey = ("strategy", "data_parallel", "data_sharding")
    said: list[tuple[PathKey, str | None, tuple[str, ...]]] = []
    if sharding is not None:
        said += [((*at, key), getattr(sharding, key), SHARDING_METHODS) for key in ("method", "strategy")]
    if splitting is not None:
        path: PathKey = ("strategy", "model_parallel", "model_splitting", "method")
        said.append((path, splitting.method, SPLITTING_METHODS))
    for path, method, known in said:
        if method is not None and method.replace("-", "_").casefold() not in known:
            message = _("{value} is no method that dttui's scripts know, which are: {known}")
            message = message.format(value=shown(method), known=", ".join(known))
            hint = did_you_mean(method, known) or _("The script has to know it: it finds it in DTTUI_CONFIG.")
            yield warning("unknown-method", format_path(path), message, hint, path=path)


def _check_metrics(job: Job) -> Iterator[Finding]:
    for index, name in enumerate(job.monitoring.metric_names):
        yield from _check_metric(job, name, ("monitoring", "metrics", index))


def _check_metric(job: Job, name: str, path: PathKey) -> Iterator[Finding]:
    """Name a metric that cannot be had; any other name is one that a script may report by itself."""
    subject = "monitoring.metrics"
    if name.startswith(("gpu.", "host.")) and not is_measured(name):
        message = _("nobody measures {name}").format(name=shown(name))
        hint = did_you_mean(name, measured_names()) or _("Hosts are measured by: {names}.").format(
            names=", ".join(measured_names())
        )
        yield warning("unknown-metric", subject, message, hint, path=path)
    elif name == "bubble_time" and (job.strategy.pipeline_degree or 1) == 1 and job.strategy.type in _NO_STAGES:
        message = _("bubble_time is what a pipeline's stages wait, and the job has no pipeline")
        yield warning("unknown-metric", subject, message, _("Leave it out."), path=path)
    elif not (is_measured(name) or name in {*SEED_METRICS, *reported_names(), *job.monitoring.metric_patterns}):
        message = _("dttui does not make {name} by itself: it is there where the script reports it by this name")
        near = did_you_mean(name, (*SEED_METRICS, *reported_names(), *measured_names()))
        hint = _(_OF_SCRIPTS[name]) if name in _OF_SCRIPTS else near
        yield info("unknown-metric", subject, message.format(name=shown(name)), hint, path=path)


_NO_STAGES = ("data_parallel",)


def _check_dashboard(job: Job) -> Iterator[Finding]:
    """Name what no dashboard can make sense of."""
    shown_by = job.monitoring.visualization
    if shown_by is None or shown_by.dashboard is None:
        return
    at: PathKey = ("monitoring", "visualization")
    if not shown_by.enabled:
        message = _("there is a dashboard, and visualization.enabled is false")
        hint = _("Write enabled: true, or leave the dashboard out.")
        yield warning("dashboard", format_path((*at, "enabled")), message, hint, path=(*at, "dashboard"))
    for key, value in shown_by.dashboard.items():
        path = (*at, "dashboard", key)
        if key not in DASHBOARD_KEYS:
            message = _("dttui knows no setting of dashboards called {key}").format(key=shown(key))
            near = did_you_mean(key, DASHBOARD_KEYS)
            hint = near or _("The script has to know it: it finds it in DTTUI_CONFIG.")
            yield (warning if near else info)("dashboard", format_path(path), message, hint, path=path)
        elif (expected := _fault(key, value)) is not None:
            message = _("expected {expected}, found {value}").format(expected=expected, value=shown(value))
            yield warning("dashboard", format_path(path), message, path=path)
        elif key in ("panels", "metrics"):
            for index, name in enumerate(value):
                if isinstance(name, str):
                    yield from _check_metric(job, name, (*path, index))


def _fault(key: str, value: Any) -> str | None:
    """Return what was expected in the place of a value of a dashboard; `None` where it will do."""
    if key == "port":
        is_port = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _HIGHEST_PORT
        return None if is_port else _("a port from 1 to 65535")
    if key in ("panels", "metrics"):
        is_list = isinstance(value, tuple) and all(isinstance(item, (str, Mapping)) for item in value)
        return None if is_list else _("a list of metrics")
    if key == "url":
        is_url = isinstance(value, str) and value.startswith(("http://", "https://"))
        return None if is_url else _("an address that begins with http:// or https://")
    is_none = isinstance(value, (Mapping, tuple)) or value is None or value == ""
    return _("text") if key in _TEXTS and is_none else None


def _tell_for_script(job: Job) -> Iterator[Finding]:
    keys = list(keys_for_script(job))
    if keys:
        told = ", ".join(map(format_path, keys))
        message = _("for the script alone, in the file that DTTUI_CONFIG names: {keys}").format(keys=told)
        hint = _("A script that does not read that file has to be told by {arguments}.")
        is_command = job.run is not None and job.run.command is not None
        hint = hint.format(arguments="run.command" if is_command else "run.args")
        yield info("for-script", format_path(keys[0]), message, hint, path=keys[0])
