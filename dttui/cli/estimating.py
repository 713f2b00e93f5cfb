"""`estimate` and `recommend`: what training a model costs, of a job file or from options alone without an inventory."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dttui.cli.estimate_text import advice_lines, edit_lines, estimate_lines
from dttui.cli.printing import print_document, print_findings
from dttui.cli.sources import read_submission
from dttui.errors import ExitCode, UsageError
from dttui.fleet.known_hardware import gpu_types, known_hardware
from dttui.i18n import _
from dttui.planning.advising import advise_job, check_framework, edit_of
from dttui.planning.cost.assumptions import (
    HardwareClaim,
    Inputs,
    ModelClaim,
    UnknownAssumptionError,
    assume_hardware,
    assume_shape,
    layout_inputs,
)
from dttui.planning.cost.estimate import Estimate, estimate
from dttui.planning.cost.hardware import Hardware
from dttui.planning.cost.layout import Layout, faults, usual_batch
from dttui.planning.cost.recommend import recommend, usual_global_batch
from dttui.planning.cost.search import Wish
from dttui.planning.cost.shape import ModelShape
from dttui.planning.costing import check_memory, check_shape, cost
from dttui.planning.parallelism import check_degrees, check_splitting
from dttui.planning.roster import Roster, make_roster
from dttui.spec.findings import Finding, Severity
from dttui.spec.models import Job

_OF_THE_JOB = (
    "parameters",
    "layers",
    "hidden_size",
    "heads",
    "seq_length",
    "vocab_size",
    "gpu",
    "gpus",
    "gpus_per_node",
    "intra_bandwidth",
    "intra_latency",
    "inter_bandwidth",
    "inter_latency",
)
"""Options that a job file and its inventory answer."""


def show_estimate(options: Namespace) -> int:
    """Print what one layout costs: of a job as it is, with what the options change, or of the options alone."""
    findings: Sequence[Finding] = ()
    if options.file is not None:
        result, findings = _estimate_of_job(options)
    else:
        shape, hardware, inputs = _assumed(options)
        said = _said(options)
        result = _estimated(shape, _layout(options, said), hardware, inputs, set(said))
        findings = [*check_shape(shape), *check_memory(result)]
    if options.output != "human":
        told = [finding.model_dump(mode="json") for finding in findings]
        print_document({**result.model_dump(mode="json"), "findings": told}, options.output)
    else:
        print("\n".join(estimate_lines(result)))
        print_findings(findings)
    return ExitCode.OK


def show_recommendation(options: Namespace) -> int:
    """Print which layouts are fastest, and for a job file what to write into it; exit 2 where none can be."""
    edits: list[dict[str, Any]] = []
    framework = None
    if options.file is not None:
        job, roster = _job_of(options)
        known = known_hardware()
        precision = options.precision or (job.model.precision if job.model is not None else None)
        found, findings = advise_job(
            job, roster.members, known.gpus, known.links, _wish(options, precision), options.global_batch
        )
        if found is None:
            raise _unknown(job, roster, findings)
        advice, gpus, gpu, batch = found.advice, found.gpus, found.gpu, found.global_batch
        is_given, framework = found.batch_is_given, job.framework
        edits = [edit_of(job, item) for item in advice.candidates]
    else:
        shape, hardware, inputs = _assumed(options)
        batch = options.global_batch or usual_global_batch(shape, hardware)
        is_given = options.global_batch is not None
        wish = _wish(options, options.precision)
        advice = recommend(shape, hardware, batch, inputs, wish, batch_is_given=is_given)
        gpus, gpu = hardware.gpus, hardware.gpu.name
    if options.output != "human":
        document: dict[str, Any] = {"gpus": gpus, "gpu": gpu, "global_batch": batch, **advice.model_dump(mode="json")}
        for candidate, edit in zip(document["candidates"], edits, strict=False):
            candidate["edit"] = edit
        print_document(document, options.output)
        return ExitCode.OK if advice.candidates else ExitCode.USAGE
    if advice.problem is not None:
        raise UsageError(advice.problem)
    lines = advice_lines(advice, gpus, gpu, batch, batch_is_given=is_given)
    if edits:
        lines += edit_lines(edits[0], check_framework(framework, advice.candidates[0]))
    print("\n".join(lines))
    return ExitCode.OK


def _estimate_of_job(options: Namespace) -> tuple[Estimate, Sequence[Finding]]:
    job, roster = _job_of(options)
    known = known_hardware()
    costing, findings = cost(job, roster.members, known.gpus, known.links)
    if costing is None:
        raise _unknown(job, roster, findings)
    said = _said(options)
    if not said:
        told = [item for item in roster.findings if item.severity is Severity.WARNING]
        return costing.estimate, [*told, *check_splitting(job), *findings]
    usual = costing.layout
    split = said.get("tensor", usual.tensor) * said.get("pipeline", usual.pipeline)
    data = said.get("data", max(costing.hardware.gpus // split, 1))
    declared = {name for name, item in costing.estimate.inputs.items() if item.source == "declared"}
    batch = usual.global_batch
    if "layout.global_batch" not in declared:
        batch = usual_batch(data, said.get("micro_batch", usual.micro_batch), said.get("pipeline", usual.pipeline))
    layout = replace(usual, **{"data": data, "global_batch": batch, **said})
    named = {name.removeprefix("layout.") for name in declared if name.startswith("layout.")} | said.keys()
    changed = _estimated(costing.shape, layout, costing.hardware, costing.estimate.inputs, set(named))
    return changed, [*check_shape(costing.shape), *check_memory(changed)]


def _job_of(options: Namespace) -> tuple[Job, Roster]:
    """Return the job and its nodes. Raises UsageError for options that the job answers, and for unknown nodes."""
    given = [f"--{name.replace('_', '-')}" for name in _OF_THE_JOB if getattr(options, name) is not None]
    if given:
        message = _("{options}: the job file and its inventory say that").format(options=", ".join(given))
        raise UsageError(message, _("Leave it out, or leave out the file and give --gpu, --gpus and the model."))
    submission = read_submission(options, options.file)
    roster = make_roster(submission.job, submission.inventory, {})
    wrong = next((item for item in roster.findings if item.severity is Severity.ERROR), None)
    if wrong is not None:
        raise UsageError(wrong.message, wrong.hint)
    return submission.job, roster


def _unknown(job: Job, roster: Roster, findings: Sequence[Finding]) -> UsageError:
    """Return why a job has no estimate, with the remedy."""
    if any(member.environment.simulated for member in roster.members):
        message = _("simulated GPUs compute on the CPU, which has no estimate")
        return UsageError(message, _("Give --gpu, --gpus and the model instead of the file."))
    if job.model is None:
        hint = _("Write model.parameters into the job, or give --parameters, such as 7e9.")
        return UsageError(_("the job does not name its model"), hint)
    told = next(iter([*findings, *check_degrees(job, roster.world_size)]), None)
    return UsageError(told.message, told.hint) if told is not None else UsageError(_("the job has no nodes"))


def _assumed(options: Namespace) -> tuple[ModelShape, Hardware, Inputs]:
    if options.gpu is None or options.gpus is None:
        raise UsageError(
            _("it is not said which GPUs to train on"),
            _("Give --gpu and --gpus, such as --gpu A100-80GB --gpus 64; or a job file."),
        )
    claim = ModelClaim(
        options.parameters, options.layers, options.hidden_size, options.heads, options.seq_length, options.vocab_size
    )
    machine = HardwareClaim(
        options.gpu,
        options.gpus,
        options.gpus_per_node,
        intra_bandwidth=options.intra_bandwidth,
        intra_latency_s=options.intra_latency,
        inter_bandwidth=options.inter_bandwidth,
        inter_latency_s=options.inter_latency,
    )
    try:
        shape, of_model = assume_shape(claim)
        hardware, of_hardware = assume_hardware(machine, gpu_types())
    except UnknownAssumptionError as fault:
        raise UsageError(str(fault), fault.hint) from fault
    return shape, hardware, {**of_model, **of_hardware}


def _estimated(shape: ModelShape, layout: Layout, hardware: Hardware, inputs: Inputs, declared: set[str]) -> Estimate:
    problems = list(faults(layout, shape, hardware.gpus, hardware.gpus_per_node))
    if problems:
        raise UsageError("; ".join(problems), _("Change the degrees, the batches, or the number of GPUs."))
    return estimate(shape, layout, hardware, {**inputs, **layout_inputs(layout, declared, hardware)})


def _said(options: Namespace) -> dict[str, Any]:
    """Return the fields of a layout that the options give."""
    given = {
        "data": options.dp,
        "tensor": options.tp,
        "pipeline": options.pp,
        "virtual_stages": options.virtual_stages,
        "micro_batch": options.micro_batch,
        "global_batch": options.global_batch,
        "zero_stage": options.zero_stage,
        "recompute": options.recompute,
        "sequence_parallel": options.sequence_parallel,
        "precision": options.precision,
        "gradient_bytes": options.gradient_bytes,
        "schedule": options.schedule,
        "offload": options.offload,
    }
    return {name: value for name, value in given.items() if value is not None}


def _layout(options: Namespace, said: dict[str, Any]) -> Layout:
    pipeline = options.pp or 1
    data = options.dp or max(options.gpus // ((options.tp or 1) * pipeline), 1)
    return Layout(**{"data": data, "global_batch": usual_batch(data, options.micro_batch or 1, pipeline), **said})


def _wish(options: Namespace, precision: Any) -> Wish:
    return Wish(
        options.dp,
        options.tp,
        options.pp,
        options.virtual_stages,
        options.micro_batch,
        options.zero_stage,
        options.recompute,
        options.sequence_parallel,
        precision,
    )
