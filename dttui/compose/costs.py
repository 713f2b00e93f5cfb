"""What a person asks of the cost model: of a job as it is, of a job with changes, or of numbers without a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dttui import locations
from dttui.compose.draft_answers import AdviceAnswer, CostAnswer, CostQuestion
from dttui.errors import UsageError
from dttui.fleet.known_hardware import gpu_types, known_hardware, learned_from_jobs
from dttui.i18n import _, sentences
from dttui.planning.advising import advise_job, check_framework, edit_of, shape_is_given
from dttui.planning.cost.assumptions import (
    CLAIMED,
    Inputs,
    ModelClaim,
    UnknownAssumptionError,
    assume_hardware,
    assume_shape,
    layout_inputs,
)
from dttui.planning.cost.estimate import estimate as estimated
from dttui.planning.cost.estimate import with_tokens
from dttui.planning.cost.fitting_degrees import fitting_text
from dttui.planning.cost.hardware import Hardware, usual_precision
from dttui.planning.cost.layout import KEPT, Fault, Layout, faults, usual_batch, usual_micro_batch
from dttui.planning.cost.layout_changes import change_texts, helpful_changes
from dttui.planning.cost.recommend import Advice, frameworks_of, usual_global_batch, usually_trained
from dttui.planning.cost.recommend import recommend as recommended
from dttui.planning.cost.shape import ModelShape
from dttui.planning.costing import check_memory, check_precision, check_shape, cost, cpu_remedy, is_on_unknown_cpu
from dttui.planning.parallelism import check_degrees, check_splitting
from dttui.planning.roster import Roster, make_roster
from dttui.planning.submission import Submission
from dttui.spec.findings import Finding, Severity, warning
from dttui.spec.hub_config import is_config, read_config, with_config
from dttui.spec.known_models import find_model, model_meant
from dttui.spec.models import Job
from dttui.spec.problems import shown


def estimate(question: CostQuestion, submission: Submission | None) -> CostAnswer:
    """Return what one layout costs. Raises UsageError, with the remedy, where nothing can be said."""
    if submission is not None:
        return _estimate_of_job(question, submission)
    shape, hardware, inputs = _assumed(question)
    said = dict(question.layout)
    layout = replace(usually_trained(_layout(said, shape, hardware)), **said)
    return _answer(question, shape, layout, hardware, inputs, set(said))


def recommend(question: CostQuestion, submission: Submission | None) -> AdviceAnswer:
    """Return which layouts are fastest. Raises UsageError, with the remedy, where nothing can be searched for."""
    if submission is None:
        shape, hardware, inputs = _assumed(question)
        batch = question.global_batch or usual_global_batch(shape, hardware)
        is_given = question.global_batch is not None
        advice = recommended(shape, hardware, batch, inputs, question.wish, batch_is_given=is_given)
        advice = _with_tokens(advice, question.tokens)
        return AdviceAnswer(
            advice, hardware.gpus, hardware.gpu.name, batch, is_given, shape_is_given(inputs), framework=None
        )
    job, roster = _job_of(submission)
    known = known_hardware(submission.inventory.environments)
    precision = question.wish.precision or (job.model.precision if job.model is not None else None)
    wish = replace(question.wish, precision=precision)
    found, findings = advise_job(
        job, roster.members, known.gpus, known.links, wish, question.global_batch, known.learned
    )
    if found is None:
        raise _unknown(job, roster, findings)
    found = replace(found, advice=_with_tokens(found.advice, question.tokens))
    candidates = found.advice.candidates
    return AdviceAnswer(
        **vars(found),
        edits=[edit_of(job, item) for item in candidates],
        framework_problem=check_framework(job.framework, candidates[0]) if candidates else None,
    )


def _with_tokens(advice: Advice, tokens: float | None) -> Advice:
    """Return advice whose estimates go to so many tokens; `None` leaves the usual number."""
    told = [item.model_copy(update={"estimate": with_tokens(item.estimate, tokens)}) for item in advice.candidates]
    return advice.model_copy(update={"candidates": told})


def _estimate_of_job(question: CostQuestion, submission: Submission) -> CostAnswer:
    job, roster = _job_of(submission)
    known = known_hardware(submission.inventory.environments)
    costing, findings = cost(job, roster.members, known.gpus, known.links, known.learned)
    if costing is None:
        raise _unknown(job, roster, findings)
    said = dict(question.layout)
    if not said:
        told = [item for item in roster.findings if item.severity is Severity.WARNING]
        found = helpful_changes(costing.shape, costing.layout, costing.hardware, job.framework)
        result = with_tokens(costing.estimate, question.tokens)
        told += [*check_splitting(job), *findings]
        return CostAnswer(result, told, found, change_texts(found, job.framework))
    usual = costing.layout
    split = said.get("tensor", usual.tensor) * said.get("pipeline", usual.pipeline)
    split *= said.get("context", usual.context)
    data = said.get("data", max(costing.hardware.gpus // split, 1))
    declared = {name for name, item in costing.estimate.inputs.items() if item.source == "declared"}
    batch = usual.global_batch
    if "layout.global_batch" not in declared:
        batch = usual_batch(data, said.get("micro_batch", usual.micro_batch), said.get("pipeline", usual.pipeline))
    layout = replace(usual, **{"data": data, "global_batch": batch, **said})
    named = {name.removeprefix("layout.") for name in declared if name.startswith("layout.")} | said.keys()
    shape, inputs = costing.shape, costing.estimate.inputs
    return _answer(question, shape, layout, costing.hardware, inputs, set(named), job.framework)


def _job_of(submission: Submission) -> tuple[Job, Roster]:
    """Return the job and its nodes. Raises UsageError for unknown nodes."""
    job = with_config(submission.job, submission.base)
    roster = make_roster(job, submission.inventory, {})
    wrong = next((item for item in roster.findings if item.severity is Severity.ERROR), None)
    if roster.by_count:
        return job, roster
    if wrong is not None:
        raise UsageError(wrong.message, wrong.hint)
    return job, roster


def _unknown(job: Job, roster: Roster, findings: Sequence[Finding]) -> UsageError:
    """Return why a job has no estimate, with the remedy."""
    if is_on_unknown_cpu(roster.members, gpu_types()):
        message = _("simulated GPUs compute on the CPU, which has no estimate")
        return UsageError(message, cpu_remedy(_("Give --gpu, --gpus and the model instead of the file.")))
    if job.model is None:
        hint = _("Write model.parameters into the job, or give --parameters, such as 7e9.")
        return UsageError(_("the job does not name its model"), hint)
    told = next(iter([*findings, *check_degrees(job, roster.world_size)]), None)
    return UsageError(told.message, told.hint) if told is not None else UsageError(_("the job has no nodes"))


def _assumed(question: CostQuestion) -> tuple[ModelShape, Hardware, Inputs]:
    if question.hardware is None:
        raise UsageError(
            _("it is not said which GPUs to train on"),
            _("Give --gpu and --gpus, such as --gpu A100-80GB --gpus 64; or a job file."),
        )
    try:
        shape, of_model = assume_shape(_named(question.model))
        hardware, of_hardware = assume_hardware(
            question.hardware, gpu_types(), learned_from_jobs(locations.gpu_types_file())
        )
    except UnknownAssumptionError as fault:
        raise UsageError(str(fault), fault.hint) from fault
    return shape, hardware, {**of_model, **of_hardware}


def _named(claim: ModelClaim) -> ModelClaim:
    """Return what is said of a model with what its name stands for: a known one's sizes, or those of a configuration.

    Raises:
        UsageError: there is no such model, it has sizes that are said besides, or a configuration cannot be read.
    """
    name = claim.name
    if name is None:
        return claim
    said = {key: value for key in CLAIMED if (value := getattr(claim, key)) is not None}
    if is_config(name):
        return replace(claim, **{**read_config(Path(name)), **said}, name=None)
    if find_model(name) is None:
        near = model_meant(name)
        told = _("no model {name} is known").format(name=shown(name))
        rest = _(
            "Give one that `dttui estimate --models` lists, a config.json of Hugging Face, or --parameters, "
            "such as 7e9; of what is no transformer ResNets alone are estimated."
        )
        raise UsageError(told, f"{near[:1].upper()}{near[1:]} {rest}".strip())
    given = [f"--{key.replace('_', '-')}" for key in ("parameters", "layers", "hidden_size") if key in said]
    if given:
        told = _("{options}: the model {name} has its own").format(options=", ".join(given), name=name)
        raise UsageError(told, _("Leave it out, or leave out --model."))
    return claim


def _answer(
    question: CostQuestion,
    shape: ModelShape,
    layout: Layout,
    hardware: Hardware,
    inputs: Inputs,
    declared: set[str],
    framework: str | None = None,
) -> CostAnswer:
    """Return what a layout costs. Raises UsageError where it cannot be."""
    problems = list(faults(layout, shape, hardware.gpus, hardware.gpus_per_node))
    # Stages that are unlike each other can be trained in, by who says how many layers each has.
    if wrong := [problem for problem in problems if problem.field != "layers" or framework is not None]:
        fitting = dict.fromkeys(filter(None, (fitting_text(problem, shape, layout, hardware) for problem in wrong)))
        hint = sentences(fitting) or _("Change the degrees, the batches, or the number of GPUs.")
        raise UsageError("; ".join(problem.message for problem in wrong), hint)
    counted = replace(layout, precision=hardware.gpu.nearest(layout.precision))
    result = estimated(shape, counted, hardware, {**inputs, **layout_inputs(counted, declared, hardware)})
    if framework is None and (able := frameworks_of(counted)):
        text = _("kernels, buffers and what hides behind computing are as with {framework}")
        result = result.model_copy(update={"assumes": [*result.assumes, text.format(framework=able[0])]})
    told = [
        *check_shape(shape),
        *check_precision(layout, hardware),
        *_check_stages(problems, shape, layout),
        *_check_idle(declared, layout),
        *check_memory(result, shape, layout),
    ]
    kept = {name: value for name, value in question.layout.items() if name in KEPT and name != "offload"}
    found = helpful_changes(shape, counted, hardware, framework, kept)
    return CostAnswer(with_tokens(result, question.tokens), told, found, change_texts(found, framework))


def _check_stages(problems: Sequence[Fault], shape: ModelShape, layout: Layout) -> list[Finding]:
    """Say what is taken where the stages of a pipeline cannot be alike."""
    if not problems:
        return []
    most = -(-shape.layers // layout.pipeline)
    text = _("{problem}: it is taken that no stage has more than {most} layers")
    hint = _("Megatron-LM is told so by --pipeline-model-parallel-layout.")
    return [warning("uneven-stages", "layout", text.format(problem=problems[0].message, most=most), hint)]


def _check_idle(declared: set[str], layout: Layout) -> list[Finding]:
    """Warn of what was asked for and changes nothing without another degree."""
    needs = {
        "schedule": (layout.pipeline, "--schedule", "--pp"),
        "sequence_parallel": (layout.tensor, "--sequence-parallel", "--tp"),
    }
    text = _("{option} changes nothing without {other} above 1")
    return [
        warning("no-effect", "layout", text.format(option=option, other=other))
        for name, (degree, option, other) in needs.items()
        if name in declared and degree == 1 and getattr(layout, name) not in (False, Layout().schedule)
    ]


def _layout(said: Mapping[str, Any], shape: ModelShape, hardware: Hardware) -> Layout:
    pipeline = said.get("pipeline", 1)
    data = said.get("data", max(hardware.gpus // (said.get("tensor", 1) * said.get("context", 1) * pipeline), 1))
    micro = usual_micro_batch(shape)
    if shape.convolutions is not None and "global_batch" in said:
        micro = max(said["global_batch"] // data, 1)
    usual: dict[str, Any] = {
        "data": data,
        "micro_batch": micro,
        "global_batch": usual_batch(data, said.get("micro_batch", micro), pipeline),
        "precision": usual_precision([hardware.gpu]),
    }
    return Layout(**{**usual, **said})
