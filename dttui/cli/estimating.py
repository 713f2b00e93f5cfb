"""`estimate` and `recommend`: what training a model costs, of a job file or from options alone without an inventory."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from dttui.app import App
from dttui.cli.estimate_text import advice_lines, edit_lines, estimate_lines
from dttui.cli.printing import print_document, print_findings
from dttui.cli.sources import read_submission
from dttui.compose import CostQuestion
from dttui.errors import ExitCode, UsageError
from dttui.i18n import _, sentences
from dttui.planning import CLAIMED, HardwareClaim, ModelClaim, Submission, Wish
from dttui.planning.cost_text import known_models

_OF_THE_JOB = (
    "model",
    *CLAIMED,
    "gpu",
    "gpus",
    "gpus_per_node",
    "intra_bandwidth",
    "intra_latency",
    "inter_bandwidth",
    "inter_latency",
    "storage_bandwidth",
)
"""Options that a job file and its inventory answer."""
_KEPT = ("optimizer", "weights", "fused", "offload", "offload_activations")
"""Those of a layout that is estimated as of one that is searched for."""


def show_estimate(options: Namespace) -> int:
    """Print what one layout costs: of a job as it is, with what the options change, or of the options alone."""
    if options.models:
        return _show_models()
    found = App().drafts.estimate(_question(options, _said(options)), _job_of(options))
    if options.output != "human":
        told = [finding.model_dump(mode="json") for finding in found.findings]
        remedies = [remedy.model_dump(mode="json") for remedy in found.remedies]
        document = {**found.estimate.model_dump(mode="json"), "remedies": remedies, "findings": told}
        print_document(document, options.output)
    else:
        print("\n".join(estimate_lines(found.estimate, time.time(), found.shrinking)))
        print_findings(found.findings)
    return ExitCode.OK


def show_recommendation(options: Namespace) -> int:
    """Print which layouts are fastest, and for a job file what to write into it; exit 2 where none can be."""
    if options.models:
        return _show_models()
    found = App().drafts.recommend(_question(options, {}), _job_of(options))
    advice = found.advice
    if options.output != "human":
        asked = {"gpus": found.gpus, "gpu": found.gpu, "global_batch": found.global_batch}
        document: dict[str, Any] = {**asked, **advice.model_dump(mode="json")}
        for candidate, edit in zip(document["candidates"], found.edits, strict=False):
            candidate["edit"] = edit
        print_document(document, options.output)
        return ExitCode.OK if advice.candidates else ExitCode.USAGE
    if advice.problem is not None:
        raise UsageError(advice.problem, sentences(advice.ways_out))
    lines = advice_lines(found)
    if found.edits:
        lines += edit_lines(found.edits[0], [found.framework_problem, found.staying])
    print("\n".join(lines))
    return ExitCode.OK


def _show_models() -> int:
    print("\n".join(known_models().lines()))
    return ExitCode.OK


def _job_of(options: Namespace) -> Submission | None:
    """Return the job, where a file is named. Raises UsageError for options that it answers."""
    if options.file is None:
        return None
    given = [f"--{name.replace('_', '-')}" for name in _OF_THE_JOB if getattr(options, name, None) is not None]
    if given:
        message = _("{options}: the job file and its inventory say that").format(options=", ".join(given))
        raise UsageError(message, _("Leave it out, or leave out the file and give --gpu, --gpus and the model."))
    return read_submission(options, options.file)


def _question(options: Namespace, layout: dict[str, Any]) -> CostQuestion:
    claim = ModelClaim(**{name: getattr(options, name, None) for name in CLAIMED}, name=options.model)
    machine = None
    if options.gpu is not None and options.gpus is not None:
        machine = HardwareClaim(
            options.gpu,
            options.gpus,
            options.gpus_per_node,
            intra_bandwidth=options.intra_bandwidth,
            intra_latency_s=options.intra_latency,
            inter_bandwidth=options.inter_bandwidth,
            inter_latency_s=options.inter_latency,
            storage_bandwidth=options.storage_bandwidth,
        )
    wish = Wish(
        options.dp,
        options.tp,
        options.pp,
        options.virtual_stages,
        options.micro_batch,
        options.zero_stage,
        options.recompute,
        options.sequence_parallel,
        options.precision,
        context=options.cp,
        expert=options.ep,
        kept=_kept(options),
    )
    return CostQuestion(claim, machine, layout, wish, options.global_batch, options.tokens)


def _said(options: Namespace) -> dict[str, Any]:
    """Return the fields of a layout that the options give."""
    given = {
        "data": options.dp,
        "tensor": options.tp,
        "pipeline": options.pp,
        "context": options.cp,
        "expert": options.ep,
        "virtual_stages": options.virtual_stages,
        "micro_batch": options.micro_batch,
        "global_batch": options.global_batch,
        "zero_stage": options.zero_stage,
        "recompute": options.recompute,
        "sequence_parallel": options.sequence_parallel,
        "precision": options.precision,
        "gradient_bytes": options.gradient_bytes,
        "schedule": options.schedule,
        "compiled": options.compiled,
    }
    return {name: value for name, value in given.items() if value is not None} | _kept(options)


def _kept(options: Namespace) -> dict[str, Any]:
    """Return those that `recommend` does not search."""
    return {name: value for name in _KEPT if (value := getattr(options, name, None)) is not None}
