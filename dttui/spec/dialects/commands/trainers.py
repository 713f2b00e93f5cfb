"""Launchers that start the ranks of a node: torchrun and its kin, accelerate, deepspeed; and what starts its own."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from dttui.i18n import _
from dttui.spec.dialects.commands.accelerate_launch import accelerate
from dttui.spec.dialects.commands.launch import GivenValue, Launch, ProgramKind
from dttui.spec.dialects.commands.launcher_options import Given, OptionError, Options, names
from dttui.spec.dialects.commands.program_start import start
from dttui.spec.dialects.commands.torchrun_options import TORCHRUN
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.yaml_source import Mark

Words = Sequence[Word]

_DEEPSPEED = Options(
    "deepspeed",
    names(
        """
    --hostfile --include --exclude --num-nodes --min-elastic-nodes --max-elastic-nodes --num-gpus
    --master-port --master-addr --node-rank --launcher --launcher-args --autotuning --elastic-training
    --bind-core-list --enable-each-rank-log --ssh-port --venv-script --log-dir
    """
    ),
    names(
        """
    --module --no-python --elastic-training --save-pid --no-local-rank --no-ssh-check --force-multi
    --bind-cores-to-rank --no-ssh --quick-start
    """
    ),
    short={
        "-H": "--hostfile",
        "-i": "--include",
        "-e": "--exclude",
        "-m": "--module",
        "--num-accelerators": "--num-gpus",
    },
)
"""Options of DeepSpeed's launcher (0.19, deepspeed/launcher/runner.py)."""
_COMPOSER = Options(
    "composer",
    names(
        """
    --nproc --world-size --base-rank --node-rank --master-addr --master-port --stdout --stderr
    """
    ),
    frozenset({"--module-mode", "--command-mode", "--verbose"}),
    short={"-n": "--nproc", "-m": "--module-mode", "-c": "--command-mode", "-v": "--verbose"},
)
_COLOSSAL = Options(
    "colossalai run",
    names(
        """
    --hostfile --host --include --exclude --num-nodes --nproc-per-node --master-port --master-addr
    --ssh-port --extra-launch-args
    """
    ),
    frozenset({"--module"}),
    short={"-H": "--host", "-m": "--module"},
)
_FABRIC = Options(
    "lightning run model",
    names(
        """
    --accelerator --strategy --devices --num-nodes --node-rank --main-address --main-port --precision
    """
    ),
)
OWN_RANKS: dict[str, frozenset[str]] = {
    "llamafactory-cli": frozenset({"train"}),
    "lmf": frozenset({"train"}),
    "swift": frozenset({"sft", "pt", "rlhf", "dpo", "grpo"}),
    "megatron": frozenset({"sft", "pt", "rlhf"}),
    "axolotl": frozenset({"train"}),
    "xtuner": frozenset({"train"}),
    "trl": frozenset({"sft", "dpo", "grpo", "kto", "reward", "rloo"}),
    "tune": frozenset({"run"}),
    "oumi": frozenset({"train", "distributed"}),
    "automodel": frozenset(),
    "nemo": frozenset({"llm"}),
    "fairseq-train": frozenset(),
    "fairseq-hydra-train": frozenset(),
    "yolo": frozenset(),
    "litgpt": frozenset({"pretrain", "finetune", "finetune_full", "finetune_lora"}),
}
"""Programs that start the ranks of a node themselves, and which of their verbs do; nothing for all."""
_OWN_SCRIPTS = frozenset({"deepy.py"})
"""The same among scripts: GPT-NeoX's."""
_DEVICES = re.compile(r"(?:--(?:trainer\.)?|trainer\.)(?:devices|gpus|num[-_]gpus|n_?gpus)")
"""By which a script is told how many GPUs it is to use, as Lightning's are."""
_SPAWNS = frozenset({"--multiprocessing-distributed", "--multiprocessing_distributed"})
"""PyTorch's ImageNet example and what descends from it: a rank on each GPU."""
_SAME_AS_TORCHRUN = frozenset({"tune"})
"""Those that take torchrun's options, which they are given by PET_… where dttui starts them."""
_PLACES = {"NNODES": "nodes", "NPROC_PER_NODE": "per_node"}


def torchrun(launch: Launch, words: Words, *, spelt: int = 1) -> None:
    """Take `torchrun OPTIONS program …`, or the module that stands for it, of which `spelt` words are passed."""
    given, rest = TORCHRUN.parse(words[spelt:])
    launch.launchers.append("torchrun")
    given_names = {option.name for option in given}
    for option in given:
        _take_torchrun(launch, launch.take(option.name, option), option, given_names)
    is_old = "launch" in words[spelt - 1].text
    if is_old and "--use-env" not in given_names:
        said = launch.enter("torch.distributed.launch", words[spelt - 1])
        message = _(
            "torch.distributed.launch passed --local-rank to the script; here it finds LOCAL_RANK in its environment"
        )
        launch.remark(said, message, _("A script that knows --local-rank alone has to read LOCAL_RANK."))
    start(launch, _kind_of(given), rest, words[-1])


def _take_torchrun(launch: Launch, said: GivenValue, option: Given, given_names: set[str]) -> None:
    if option.name == "--nnodes":
        launch.nodes = said if launch.nodes is None or not said.is_open else launch.nodes
    elif option.name == "--nproc-per-node":
        launch.per_node = said
    elif option.name == "--master-addr" or (
        option.name == "--rdzv-endpoint" and "--standalone" not in given_names and "--master-addr" not in given_names
    ):
        launch.master = said
    elif option.name == "--max-restarts":
        launch.restarts = said
    elif option.name in ("--rdzv-backend", "--rdzv-id", "--rdzv-conf"):
        launch.leave_out(said, _("dttui gives every node its rank, and needs no rendezvous of it"))
    elif option.name == "--master-port":
        launch.leave_out(said, _("the port is chosen at the start, from the master's port_range"))
    elif option.name in ("--log-dir", "--redirects", "--tee", "--local-ranks-filter", "--logs-specs"):
        launch.leave_out(said, _("dttui keeps the output of every rank in the job's directory"))
    elif option.has_value and option.name not in ("--node-rank", "--rdzv-endpoint"):
        launch.leave_out(said, _("dttui sets torchrun's own options"))


def deepspeed(launch: Launch, words: Words, *, spelt: int = 1) -> None:
    """Take `deepspeed OPTIONS script …`."""
    given, rest = _DEEPSPEED.parse(words[spelt:])
    launch.launchers.append("deepspeed")
    launch.framework, launch.is_framework_implied = "deepspeed", False
    places = {"--num-nodes": "nodes", "--num-gpus": "per_node", "--hostfile": "hostfile", "--master-addr": "master"}
    for option, said in _take_places(launch, given, places):
        if option == "--include":
            _take_included(launch, said)
        elif option == "--master-port":
            launch.leave_out(said, _("the port is chosen at the start, from the master's port_range"))
        elif option not in ("--module", "--no-python", "--launcher", "--no-local-rank", "--node-rank", "--no-ssh"):
            launch.leave_out(said, _("DeepSpeed's own launcher's; dttui starts the ranks itself"))
    start(launch, _kind_of(given), rest, words[-1])


def _take_included(launch: Launch, said: GivenValue) -> None:
    """Take `host1:0,1@host2:0,1`; of `localhost`, only how many."""
    if said.is_open:
        launch.leave_out(said, _("the hosts are not known: {value}").format(value=said.text), is_warning=True)
        return
    for part in said.text.split("@"):
        name, separator, numbers = part.strip().partition(":")
        count = len(numbers.split(",")) if separator else None
        if name in ("localhost", "127.0.0.1"):
            if count is not None:
                launch.per_node = GivenValue(said.key, Word(str(count), said.word.mark))
            if separator:
                launch.environment.setdefault("CUDA_VISIBLE_DEVICES", Word(numbers, said.word.mark))
            continue
        if separator:
            message = _("which GPUs of {host}: the first {count} that are free are taken").format(
                host=name, count=count
            )
            launch.leave_out(said, message)
        launch.hosts.append((name, count))
        launch.hosts_key = said.key


def composer(launch: Launch, words: Words) -> None:
    """Take `composer OPTIONS script …`, of MosaicML."""
    given, rest = _COMPOSER.parse(words[1:])
    launch.launchers.append("composer")
    _take_places(launch, given, {"--nproc": "per_node", "--world-size": "processes", "--master-addr": "master"})
    start(launch, _kind_of(given, "--module-mode"), rest, words[-1])


def colossalai(launch: Launch, words: Words) -> None:
    """Take `colossalai run OPTIONS script …`."""
    given, rest = _COLOSSAL.parse(words[2:])
    launch.launchers.append("colossalai run")
    places = {
        "--nproc-per-node": "per_node",
        "--num-nodes": "nodes",
        "--hostfile": "hostfile",
        "--master-addr": "master",
    }
    for option, said in _take_places(launch, given, places):
        if option == "--host":
            launch.hosts = [(host, None) for host in said.text.split(",") if host and not said.is_open]
            launch.hosts_key = said.key
    start(launch, _kind_of(given), rest, words[-1])


def fabric(launch: Launch, words: Words) -> None:
    """Take `lightning run model OPTIONS script …`, and `fabric run …`."""
    given, rest = _FABRIC.parse(words[3 if words[0].text == "lightning" else 2 :])
    launch.launchers.append("lightning run")
    places = {"--devices": "per_node", "--num-nodes": "nodes", "--main-address": "master"}
    for option, said in _take_places(launch, given, places):
        if option in ("--strategy", "--precision"):
            hint = _("Give it to the script as one of run.args.")
            launch.leave_out(said, _("Lightning's own"), hint, is_warning=True)
    start(launch, ProgramKind.SCRIPT, rest, words[-1])


def _take_places(launch: Launch, given: Sequence[Given], places: Mapping[str, str]) -> list[tuple[str, GivenValue]]:
    """Take options that say how many, or where: by the attribute of the launch for each. Return the others."""
    others: list[tuple[str, GivenValue]] = []
    for option in given:
        said = launch.take(option.name, option)
        if option.name in places:
            setattr(launch, places[option.name], said)
        else:
            others.append((option.name, said))
    return others


def _kind_of(given: Sequence[Given], module: str = "--module", program: str = "--no-python") -> ProgramKind:
    """Return what the program is, as options say it."""
    told = {option.name for option in given}
    if module in told:
        return ProgramKind.MODULE
    return ProgramKind.COMMAND if program in told else ProgramKind.SCRIPT


def torchx(launch: Launch, words: Words) -> None:
    """Take `torchx run OPTIONS dist.ddp -j 2x8 --script main.py -- …`."""
    options = Options(
        "torchx run",
        frozenset({"--scheduler", "--scheduler-args", "--workspace"}),
        short={"-s": "--scheduler", "-cfg": "--scheduler-args"},
    )
    _given, rest = options.parse(words[2:])
    if not rest or rest[0].text not in ("dist.ddp", "dist.spmd"):
        word = rest[0] if rest else words[-1]
        raise OptionError(
            word,
            _("dttui imports the components dist.ddp and dist.spmd of torchx alone"),
            _("Import the command that the component starts."),
        )
    launch.launchers.append("torchx")
    component = Options(
        "dist.ddp",
        names(
            """
    -j --script --module --name --image --env --mounts --cpu --gpu --memMB --h --max_retries --rdzv_port
    --rdzv_backend --rdzv_conf --tee --debug
    """
        ),
        short={"-m": "--module"},
        takes_underscores=False,
    )
    given, arguments = component.parse(rest[1:])
    program: tuple[ProgramKind, Word] | None = None
    for option in given:
        said = launch.take(option.name, option)
        if option.name == "-j":
            _take_shape(launch, said)
        elif option.name in ("--script", "--module"):
            program = (ProgramKind.SCRIPT if option.name == "--script" else ProgramKind.MODULE), option.value
        elif option.name == "--env":
            for pair in said.text.split(","):
                name, separator, value = pair.partition("=")
                if separator and name.isidentifier():
                    launch.environment[name] = Word(value, said.word.mark)
        elif option.name == "--name":
            launch.name = said
        else:
            launch.leave_out(said, _("torchx's own; dttui starts the ranks itself"))
    if program is None:
        start(launch, ProgramKind.SCRIPT, arguments, words[-1])
    else:
        start(launch, program[0], [program[1], *arguments], words[-1])


def _take_shape(launch: Launch, said: GivenValue) -> None:
    """Take `2x8`, `8` or `1:2x8`."""
    nodes, separator, each = said.text.rpartition("x")
    if separator:
        launch.nodes = GivenValue(said.key, Word(nodes, said.word.mark))
    launch.per_node = GivenValue(said.key, Word(each, said.word.mark))


def own_ranks(launch: Launch, words: Words) -> None:
    """Take a program that starts the ranks of a node itself: it is started once a node, with its place in variables."""
    launch.launchers.append(
        " ".join(word.text for word in words[:2]) if OWN_RANKS.get(words[0].text) else words[0].text
    )
    launch.is_once_a_node = True
    for name, attribute in _PLACES.items():
        if (word := launch.environment.pop(name, None)) is not None:
            setattr(launch, attribute, launch.enter(f"{name}=", word))
    if words[0].text in _SAME_AS_TORCHRUN:
        given, rest = TORCHRUN.parse(words[2:])
        given_names = {option.name for option in given}
        for option in given:
            _take_torchrun(launch, launch.take(option.name, option), option, given_names)
        # Without any of its options it would start one process; the others it has by PET_….
        kept_options = [option for option in given if option.name == "--nproc-per-node"]
        own = [word for option in kept_options for word in dict.fromkeys((option.word, option.value))]
        kept = [*words[:2], *own, *rest]
        if launch.per_node is None and rest and rest[0].text.endswith("single_device"):
            launch.per_node = launch.enter("recipe", Word("1", rest[0].mark))
    else:
        kept = _without_torchrun(launch, words)
    launch.run(ProgramKind.COMMAND, kept)


def _without_torchrun(launch: Launch, words: Words) -> list[Word]:
    """Take torchrun's options behind `--`, as `axolotl train x.yaml --launcher torchrun -- --nnodes 2` has them."""
    texts = [word.text for word in words]
    if "--" not in texts or not any(text in ("torchrun", "accelerate") for text in texts):
        return list(words)
    at = texts.index("--")
    given, rest = replace(TORCHRUN, is_complete=False).parse(words[at + 1 :])
    given_names = {option.name for option in given}
    for option in given:
        _take_torchrun(launch, launch.take(option.name, option), option, given_names)
    return [*words[:at], *([words[at], *rest] if rest else [])]


def is_own(words: Words) -> bool:
    """Whether words are a program that starts the ranks of a node itself."""
    verbs = OWN_RANKS.get(posixpath.basename(words[0].text))
    return verbs is not None and (not verbs or (len(words) > 1 and words[1].text in verbs))


def is_own_script(word: Word) -> bool:
    """Whether a script starts the ranks of a node itself."""
    return posixpath.basename(word.text) in _OWN_SCRIPTS


def own_devices(launch: Launch, words: Words, at: int) -> bool:
    """Take a script that starts a rank on each of several GPUs itself; return whether its arguments say so.

    Args:
        launch: what is known so far.
        words: the interpreter's command line.
        at: where the script stands in it.
    """
    arguments = words[at + 1 :]
    devices = _devices(arguments)
    if devices is None and not any(word.text in _SPAWNS for word in arguments):
        return False
    launch.is_once_a_node = True
    if devices is not None and devices[1].text.isdecimal():
        launch.per_node = launch.enter(*devices)
    launch.run(ProgramKind.COMMAND, words)
    return True


def _devices(arguments: Words) -> tuple[str, Word] | None:
    """Return by what arguments name several GPUs, and how many: `-1` and `auto` are all; `None` where they do not."""
    for word, following in pairwise((*arguments, Word("", Mark(1, 1)))):
        name, equals, value = word.text.partition("=")
        if _DEVICES.fullmatch(name):
            value = (value if equals else following.text).strip("[]")
            count = str(len(value.split(","))) if re.fullmatch(r"\d+(?:,\d+)+", value) else value
            if re.fullmatch(r"-1|auto|[2-9]|[1-9]\d{1,3}", count):
                return name, Word(count, word.mark)
    return None


Trainer = Callable[[Launch, Words], None]
_BY_NAME: dict[str, Trainer] = {
    "torchrun": torchrun,
    "deepspeed": deepspeed,
    "deepspeed.pt": deepspeed,
    "composer": composer,
    "accelerate-launch": lambda launch, words: accelerate(launch, words, spelt=1),
}
_BY_TWO: dict[tuple[str, str], Trainer] = {
    ("accelerate", "launch"): accelerate,
    ("colossalai", "run"): colossalai,
    ("torchx", "run"): torchx,
    ("fabric", "run"): fabric,
    ("lightning", "run"): fabric,
}
_BY_MODULE: dict[str, Callable[[Launch, Words, int], None]] = {
    **dict.fromkeys(
        ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic.run"),
        lambda launch, words, spelt: torchrun(launch, words, spelt=spelt),
    ),
    **dict.fromkeys(
        ("accelerate.commands.launch", "accelerate.commands.accelerate_cli"),
        lambda launch, words, spelt: accelerate(launch, words, spelt=spelt),
    ),
    **dict.fromkeys(
        ("deepspeed.launcher.runner", "deepspeed"), lambda launch, words, spelt: deepspeed(launch, words, spelt=spelt)
    ),
}


def trainer_of(words: Words) -> Trainer | None:
    """Return what takes the program that words begin with for a launcher of a node's ranks; `None` for none."""
    name = posixpath.basename(words[0].text)
    if len(words) > 1 and (found := _BY_TWO.get((name, words[1].text))) is not None:
        return found
    if is_own(words):
        return own_ranks
    return _BY_NAME.get(name)


def module_launcher(module: str) -> Callable[[Launch, Words, int], None] | None:
    """Return what takes `python -m module` for a launcher; `None` for none."""
    return _BY_MODULE.get(module)
