"""DeepSpeed: torchrun on every node, and its configuration as a file that the script is given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dttui.frameworks.base import Framework, JobLayout, NodeLayout, Rank
from dttui.frameworks.bundle import Hole, PlannedFile, PlannedProcess
from dttui.frameworks.option_costs import COUNTED, NEUTRAL, ON_DISK, OVERLAP, Uncounted
from dttui.frameworks.parts.collective_timeout import timeout_note
from dttui.frameworks.parts.config_file import config_file as script_settings
from dttui.frameworks.parts.deepspeed_config import CONFIG_FILE, check_config, config_file, options_of
from dttui.frameworks.parts.deepspeed_options import DeepSpeedOptions
from dttui.frameworks.parts.torchrun import check_run, torchrun
from dttui.frameworks.traits import TOLD, GroupForming, ProcessGroup, ScriptImports, SettingReach, SizeGuide, Spread
from dttui.i18n import N_, _
from dttui.spec.findings import Finding, error
from dttui.spec.models import Job
from dttui.spec.section import Section

HOSTFILE = "hostfile"
"""All nodes and their slots, as DeepSpeed's own launcher reads them, for a person who starts it by hand."""
_CONFIG_PATH = f"{Hole.DIRECTORY}/{CONFIG_FILE}"
_ARGUMENTS = {
    "deepspeed": ("--deepspeed", "--deepspeed_config", _CONFIG_PATH),
    "trainer": ("--deepspeed", _CONFIG_PATH),
    "accelerate": (),
    "none": (),
}
"""What is put after the script's own arguments, by `config_for`."""


_ONE_STATE = ("Adagrad", "Lion", "MuSGD", "Muon", "ASGD", "RMSprop")
"""Optimizers that keep one number a parameter; what is not here nor in the next keeps two, as Adam."""
_NO_STATE = ("Adafactor", "SGD")
"""Those that keep none: Adafactor a row's and a column's (Shazeer and Stern 2018), and SGD unless it has momentum."""
_OFFLOADS = {(False, False): "none", (True, False): "gradients", (False, True): "parameters", (True, True): "all"}
"""By whether the optimizer is offloaded, and parameters: gradients go with the states (Ren et al. 2021)."""


def _kept_by(optimizer: Any) -> str:
    """Return which of the optimizers that an estimate knows keeps as much as what DeepSpeed is asked for."""
    if not isinstance(optimizer, Mapping) or optimizer.get("type") not in (*_ONE_STATE, *_NO_STATE):
        return "adam-fused"
    has_momentum = optimizer.get("type") == "SGD" and (optimizer.get("params") or {}).get("momentum")
    return "momentum" if optimizer.get("type") in _ONE_STATE or has_momentum else "sgd"


class DeepSpeed(Framework):
    """Launches `torchrun` on every node; DeepSpeed's own launcher would want ssh from host to host."""

    name = "deepspeed"
    label = "DeepSpeed"
    options: type[Section] = DeepSpeedOptions
    requires: Sequence[str] = ("torch", "deepspeed")
    rank = Rank.SLOT
    needs_ports = False
    verdicts: Sequence[str] = ("torchrun", "deepspeed")
    process_group = ProcessGroup(GroupForming.EXPECTED)
    timeout_call = None
    spreads: Mapping[Spread, int] = {
        Spread.REPLICAS: 1,
        Spread.ZERO_1: 0,
        Spread.ZERO_2: 0,
        Spread.ZERO_3: 1,
        Spread.STAGES: 1,
    }
    option_costs: Mapping[str, str | Uncounted] = {
        "config_for": NEUTRAL,
        "gradient_accumulation_steps": Uncounted(N_("a rank is taken to work on its whole share of the batch at once")),
        "gradient_clipping": Uncounted(N_("the pass over all gradients that finds their norm is not timed")),
        "optimizer": COUNTED,
        "scheduler": NEUTRAL,
        "offload_optimizer": ON_DISK,
        "offload_param": ON_DISK,
        "nvme_path": NEUTRAL,  # What is kept there is named with what is offloaded.
        "overlap_comm": Uncounted(OVERLAP),
        "tensor_parallel": Uncounted(N_("tensors are taken to be split as Megatron-LM splits them")),
        "config": Uncounted(N_("keys of DeepSpeed's own are not looked at, but for those of ZeRO++")),
    }
    collective_reach: Mapping[str, SettingReach] = {
        "buffer_size": TOLD,
        **dict.fromkeys(("compression.fp16", "compression.bf16"), TOLD),
        "compression": SettingReach(reason=N_("DeepSpeed compresses gradients to fp16 or bf16 alone")),
        "overlap": TOLD,
        "overlap.false": TOLD,
    }
    arguments_advice = N_("Or write framework_options.config_for: none, and nothing is added to its arguments.")
    available = True
    overlaps_gradients = False  # Of ZeRO stage 3 alone it does by itself.

    def usual_layout(self, job: Job) -> Mapping[str, Any]:
        """Return which optimizer its options choose, what they keep off the GPU, and what ZeRO++ does."""
        said = job.framework_options
        config = said.get("config")
        zero = config.get("zero_optimization") if isinstance(config, Mapping) else None
        plus = zero if isinstance(zero, Mapping) else {}
        second = plus.get("zero_hpz_partition_size", 1)
        away = tuple(said.get(name, "none") != "none" for name in ("offload_optimizer", "offload_param"))
        return {
            "fused": False,
            "optimizer": _kept_by(said.get("optimizer")),
            "offload": _OFFLOADS[away[0], away[1]],
            "secondary_shard": second if type(second) is int and second > 1 else None,
            "quantized_weights": plus.get("zero_quantized_weights") is True,
            "quantized_gradients": plus.get("zero_quantized_gradients") is True,
        }

    @property
    def script_imports(self) -> ScriptImports:
        """What a script written for it imports."""
        return ScriptImports(
            ("deepspeed", "transformers", "accelerate", "lightning", "pytorch_lightning", "trl"),
            _("ds_config.json is written, and nothing reads it"),
        )

    @property
    def size_guide(self) -> SizeGuide:
        """For which sizes of models it is the usual one (seed 004's guide)."""
        return SizeGuide(100e9, _("from 10 to 100 B parameters ZeRO with offloading, or pipelines"))

    @property
    def summary(self) -> str:
        """Its kind of parallelism."""
        return _("Microsoft, ZeRO")

    @property
    def description(self) -> str:
        """What it is for."""
        return _("10 to 100 B parameters: very large training.")

    @property
    def features(self) -> Sequence[str]:
        """What it offers."""
        return (
            _("ZeRO memory optimisation"),
            _("mixed precision"),
            _("gradient accumulation"),
            _("pipeline parallelism"),
            _("tensor parallelism"),
        )

    def check(self, job: Job) -> list[Finding]:
        """Return what in `run` does not go with torchrun, or gives the configuration a second time."""
        findings = check_run(job, self.label)
        given = [index for index, word in enumerate(job.run.args) if _names_config(word)] if job.run is not None else []
        if given and job.framework_options.get("config_for") != "none":
            message = _("the configuration of DeepSpeed is given already, and dttui would add that of the job")
            hint = _("Leave it out of run.args (dttui import reads such a file), or write config_for: none.")
            path = ("run", "args", given[0])
            findings.append(error("run-mismatch", f"run.args[{given[0]}]", message, hint, path=path))
        return findings

    def check_layout(self, layout: JobLayout) -> list[Finding]:
        """Return what DeepSpeed would refuse; any number of ranks on any number of nodes will do."""
        findings, asked_s = check_config(layout), layout.job.communication.collective_timeout_s
        minutes = _timeout_minutes(layout)
        if asked_s is not None and minutes is not None and minutes * 60 != asked_s:
            message = _(
                "DeepSpeed has one time-out for the start of all ranks and for collectives, in whole minutes: it is "
                "told {minutes}, and rendezvous_timeout is {seconds:g} s"
            )
            rendezvous_s = layout.job.communication.rendezvous_timeout_s
            findings.append(timeout_note(message.format(minutes=minutes, seconds=rendezvous_s)))
        return findings

    def node_files(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedFile, ...]:
        """Return the script's settings, DeepSpeed's, and the hosts."""
        return tuple(layout.shared_file(make) for make in (script_settings, config_file, _hostfile))

    def processes(self, layout: JobLayout, node: NodeLayout) -> tuple[PlannedProcess, ...]:
        """Return the one torchrun of a node."""
        own = {"DTTUI_DEEPSPEED_CONFIG": _CONFIG_PATH}
        minutes = _timeout_minutes(layout)
        if minutes is not None:
            own["DEEPSPEED_TIMEOUT"] = str(minutes)
        if layout.backend != "nccl":
            # Where it finds a GPU it would take that, and NCCL.
            own["DS_ACCELERATOR"] = "cpu"
        return (torchrun(layout, node, arguments=_ARGUMENTS[options_of(layout).config_for], own=own),)


def _timeout_minutes(layout: JobLayout) -> int | None:
    """Return how long DeepSpeed is to wait; ranks that may come so late must not be ended for that."""
    talk = layout.job.communication
    limit_s = talk.collective_timeout_s
    return None if limit_s is None else math.ceil(max(limit_s, talk.rendezvous_timeout_s) / 60)


def _names_config(word: str) -> bool:
    return word.partition("=")[0] in ("--deepspeed", "--deepspeed_config")


def _hostfile(layout: JobLayout) -> PlannedFile:
    """Return the hosts, an address a line."""
    lines = [f"{host} slots={count}\n" for host, count in layout.slots_by_address().items()]
    return PlannedFile(path=HOSTFILE, text="".join(lines))
