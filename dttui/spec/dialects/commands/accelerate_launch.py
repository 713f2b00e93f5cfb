"""`accelerate launch`: its options are settings by the same names as in its configuration, and come before that's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dttui.i18n import _
from dttui.spec.dialects.accelerate import DS_CONFIG
from dttui.spec.dialects.accelerate_environment import accelerate_environment, flattened
from dttui.spec.dialects.accelerate_options import job_values, remarks
from dttui.spec.dialects.commands.launch import GivenValue, Launch, ProgramKind
from dttui.spec.dialects.commands.launcher_options import Options, names
from dttui.spec.dialects.commands.program_start import start
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.dialects.translation import NamedFile, Translation
from dttui.spec.problems import DocumentError, PathKey, Problem, shown
from dttui.spec.yaml_reader import parse_yaml

_ACCELERATE = Options(
    "accelerate launch",
    names(
        """
    --config-file --mixed-precision --num-processes --num-machines --num-cpu-threads-per-process
    --dynamo-backend --dynamo-mode --gpu-ids --machine-rank --main-process-ip
    --main-process-port --tee --log-dir --role --rdzv-backend --rdzv-conf --max-restarts --monitor-interval
    --main-training-function --tpu-name --tpu-zone --env --vm --fp8-format
    --fp8-backend --gradient-accumulation-steps --gradient-clipping --deepspeed-config-file --zero-stage
    --offload-optimizer-device --offload-param-device --offload-optimizer-nvme-path
    --offload-param-nvme-path --zero3-init-flag --zero3-save-16bit-model --deepspeed-hostfile
    --deepspeed-exclusion-filter --deepspeed-inclusion-filter --deepspeed-multinode-launcher
    --deepspeed-moe-layer-cls-names --mpirun-hostfile --mpirun-ccl --fsdp-version --fsdp-offload-params
    --fsdp-min-num-params --fsdp-sharding-strategy --fsdp-reshard-after-forward --fsdp-auto-wrap-policy
    --fsdp-transformer-layer-cls-to-wrap --fsdp-backward-prefetch --fsdp-state-dict-type
    --fsdp-forward-prefetch --fsdp-use-orig-params --fsdp-cpu-ram-efficient-loading
    --fsdp-sync-module-states --fsdp-activation-checkpointing --megatron-lm-tp-degree
    --megatron-lm-pp-degree --megatron-lm-num-micro-batches --megatron-lm-sequence-parallelism
    --megatron-lm-recompute-activations --megatron-lm-use-distributed-optimizer
    --megatron-lm-gradient-clipping
    """
    ),
    names(
        """
    --quiet --cpu --same-network --enable-cpu-affinity --dynamo-use-dynamic --dynamo-use-fullgraph --ipex --use-xpu
    --downcast-bf16 --multi-gpu --tpu --use-deepspeed --use-fsdp --use-megatron-lm --use-parallelism-config
    --module --no-python --debug --tpu-use-cluster --tpu-use-sudo --aws-access-key-id
    --dynamo-use-regional-compilation
    """
    ),
    short={
        "-m": "--module",
        "-q": "--quiet",
        "-t": "--tee",
        "--num-process": "--num-processes",
        "--use-cpu": "--cpu",
    },
)
"""Options of accelerate 1.15 (accelerate/commands/launch.py)."""
_ENV: PathKey = ("run", "env")
_KINDS = ("use_fsdp", "use_deepspeed", "use_megatron_lm", "multi_gpu", "tpu")


def accelerate(launch: Launch, words: Sequence[Word], *, spelt: int = 2) -> None:
    """Take `accelerate launch OPTIONS script …`, of which `spelt` words are passed."""
    given, rest = _ACCELERATE.parse(words[spelt:])
    launch.launchers.append("accelerate launch")
    for option in given:
        said = launch.take(option.name, option)
        _take(launch, said, option.name[2:].replace("-", "_"), has_value=option.has_value)
    is_module, is_command = "module" in launch.accelerate, "no_python" in launch.accelerate
    start(
        launch,
        ProgramKind.MODULE if is_module else ProgramKind.COMMAND if is_command else ProgramKind.SCRIPT,
        rest,
        words[-1],
    )


def _take(launch: Launch, said: GivenValue, name: str, *, has_value: bool) -> None:
    if name == "num_machines":
        launch.nodes = said
    elif name == "num_processes":
        launch.processes = said
    elif name == "main_process_ip":
        launch.master = said
    elif name == "config_file":
        launch.accelerate_file = said
    elif name == "max_restarts":
        launch.restarts = said
    elif name == "deepspeed_hostfile":
        launch.hostfile = said
    elif name in ("main_process_port", "rdzv_backend", "rdzv_conf"):
        launch.leave_out(said, _("dttui chooses the port at the start, and gives every node its rank"))
    elif name in ("tee", "log_dir"):
        launch.leave_out(said, _("dttui keeps the output of every rank in the job's directory"))
    elif said.is_open:
        launch.leave_out(said, _("{value} is not known").format(value=shown(said.text)), is_warning=True)
    else:
        launch.accelerate[name] = said if has_value else GivenValue(said.key, Word("true", said.word.mark), said.mark)
    if name == "cpu":
        launch.settings["resources.gpu.count"] = GivenValue(said.key, Word("0", said.word.mark), said.mark)


def read_configuration(launch: Launch, read: Callable[[str], str | None]) -> None:
    """Take the settings of the configuration that a launch names, where that is there.

    Raises:
        DocumentError: it is there, and no configuration.
    """
    file = launch.accelerate_file
    text = read(file.text) if file is not None and not file.is_open else None
    if file is None or text is None:
        return
    data = parse_yaml(text, file.text).data
    if not isinstance(data, Mapping):
        raise DocumentError([Problem(file.text, _("this is no configuration of accelerate"), line=1, column=1)])
    launch.accelerate_settings = {name: setting.value for name, setting in flattened(data).items()}
    counts = {"num_machines": "nodes", "num_processes": "processes", "main_process_ip": "master"}
    for name, attribute in counts.items():
        value = launch.accelerate_settings.get(name)
        if value is not None and getattr(launch, attribute) is None and str(value) != "-1":
            setattr(launch, attribute, GivenValue(file.key, Word(str(value), file.word.mark), file.mark))


def carry_accelerate(translation: Translation, launch: Launch) -> None:
    """Carry over what the settings make of the job, and of the variables of its ranks."""
    own: dict[str, Any] = {name: said.text for name, said in launch.accelerate.items()}
    values = {**(launch.accelerate_settings or {}), **own}
    is_many = launch.processes is not None and launch.processes.text != "1"
    if is_many and not any(name in values for name in (*_KINDS, "cpu", "distributed_type")):
        values["multi_gpu"] = True
    if "deepspeed_config_file" in own and not any(name in values for name in _KINDS):
        values["use_deepspeed"] = True
    keys = {name: said.key for name, said in launch.accelerate.items()}
    file = launch.accelerate_file
    other = file.key if file is not None else next(iter(keys.values()), "program")

    def origin(setting: str) -> PathKey:
        return (keys.get(setting, other),)

    for item in job_values(values):
        if item.target != ("framework",) or not item.is_implied:
            translation.put(item.target, item.value, origin(item.setting), is_implied=item.is_implied)
    if file is None or launch.accelerate_settings is not None:  # Of one that is not there it would tell the contrary.
        for variable in accelerate_environment(values, from_file=launch.accelerate_settings or ()):
            own_value = translation.carried((*_ENV, variable.name)) if variable.name == "PYTHONPATH" else None
            value = f"{own_value}:{variable.value}" if own_value else variable.value
            translation.put((*_ENV, variable.name), value, origin(variable.setting))
    named, target = launch.accelerate.get("deepspeed_config_file"), (*_ENV, "ACCELERATE_DEEPSPEED_CONFIG_FILE")
    if named is not None and translation.has(target):
        translation.expect_file(NamedFile(named.text, (named.key,), target, DS_CONFIG))
    for remark in remarks(values):
        translation.note(origin(remark.setting), remark.message, remark.hint, is_warning=remark.is_warning)
    if file is not None and launch.accelerate_settings is not None:
        translation.use((file.key,))
