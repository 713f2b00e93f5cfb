"""Programs that stand before a launcher and start it: `nohup`, `numactl`, `uv run`, `conda run`, containers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence

from dttui.i18n import _
from dttui.spec.dialects.commands.container_options import take_image, take_mounts
from dttui.spec.dialects.commands.launch import Launch
from dttui.spec.dialects.commands.launcher_options import Given, Options, names
from dttui.spec.dialects.shell.command_words import Word
from dttui.spec.text import ENV_NAME

Words = Sequence[Word]
Wrapper = Callable[[Launch, Words], Words]
"""Takes the words from its program on, and returns those of the program that it starts."""

_ENV = Options(
    "env",
    frozenset({"--unset", "--chdir"}),
    frozenset({"--ignore-environment"}),
    short={"-u": "--unset", "-C": "--chdir", "-i": "--ignore-environment"},
)
_NUMACTL = Options(
    "numactl",
    frozenset({"--interleave", "--preferred", "--physcpubind", "--cpunodebind", "--membind"}),
    frozenset({"--all", "--localalloc"}),
    short={
        "-i": "--interleave",
        "-p": "--preferred",
        "-C": "--physcpubind",
        "-N": "--cpunodebind",
        "-m": "--membind",
        "-a": "--all",
        "-l": "--localalloc",
    },
)
_TASKSET = Options("taskset", frozenset({"--cpu-list"}), short={"-c": "--cpu-list"})
_UV = Options(
    "uv run",
    frozenset(
        {
            "--with",
            "--with-editable",
            "--with-requirements",
            "--extra",
            "--group",
            "--no-group",
            "--only-group",
            "--package",
            "--python",
            "--env-file",
            "--index",
            "--index-url",
            "--extra-index-url",
            "--directory",
            "--project",
            "--no-extra",
            "--prerelease",
            "--resolution",
            "--cache-dir",
            "--config-file",
            "--find-links",
        }
    ),
    frozenset(
        {"--isolated", "--active", "--frozen", "--locked", "--no-sync", "--all-extras", "--no-project", "--module"}
    ),
    short={"-p": "--python", "-m": "--module", "-q": "--quiet"},
)
_CONDA = Options(
    "conda run",
    frozenset({"--name", "--prefix", "--cwd"}),
    frozenset({"--no-capture-output", "--live-stream", "--verbose"}),
    short={"-n": "--name", "-p": "--prefix"},
)
_TIMEOUT = Options("timeout", frozenset({"--kill-after", "--signal"}), short={"-k": "--kill-after", "-s": "--signal"})
_NICE = Options("nice", frozenset({"--adjustment"}), short={"-n": "--adjustment"})
_SUDO = Options("sudo", frozenset({"--user", "--group"}), short={"-u": "--user", "-g": "--group"})
_STDBUF = Options(
    "stdbuf", frozenset({"--output", "--error", "--input"}), short={"-o": "--output", "-e": "--error", "-i": "--input"}
)
_CONTAINER = Options(
    "apptainer",
    frozenset(
        {
            "--bind",
            "--env",
            "--env-file",
            "--home",
            "--pwd",
            "--overlay",
            "--workdir",
            "--scratch",
            "--mount",
            "--network",
            "--hostname",
            "--app",
        }
    ),
    frozenset({"--nv", "--rocm", "--cleanenv", "--contain", "--containall", "--no-home"}),
    short={
        "-B": "--bind",
        "-H": "--home",
        "-W": "--workdir",
        "-c": "--contain",
        "-C": "--containall",
        "-e": "--cleanenv",
    },
)
_NCU = Options(
    "ncu",
    names(
        """
    --export --set --section --metrics --kernel-name --kernel-name-base --launch-count --launch-skip
    --launch-skip-before-match
    --target-processes --target-processes-filter --replay-mode --log-file --nvtx-include --nvtx-exclude --clock-control
    --cache-control --profile-from-start --import-source --source-folders --page --csv-file --config-file-path
    """
    ),
    short={"-o": "--export", "-k": "--kernel-name", "-c": "--launch-count", "-s": "--launch-skip"},
)


def take_variables(launch: Launch, words: Words) -> Words:
    """Take `NAME=VALUE` before a program."""
    rest = list(words)
    while rest:
        name, separator, value = rest[0].text.partition("=")
        if not separator or not re.fullmatch(ENV_NAME, name):
            break
        word = rest.pop(0)
        launch.environment[name] = Word(value, word.mark, word.holes, word.raw.partition("=")[2])
    return rest


def _env(launch: Launch, words: Words) -> Words:
    given, rest = _ENV.parse(words[1:])
    for option in given:
        if option.name == "--unset":
            launch.environment.pop(option.value.text, None)
        elif option.name == "--chdir" and not option.value.holes:
            launch.directory = option.value.text
    return take_variables(launch, rest)


def _plain(_launch: Launch, words: Words) -> Words:
    return words[1:]


def _without_options(options: Options) -> Wrapper:
    def take(_launch: Launch, words: Words) -> Words:
        return options.parse(words[1:])[1]

    return take


def _timeout(_launch: Launch, words: Words) -> Words:
    return _TIMEOUT.parse(words[1:])[1][1:]


def _kept(options: Options, positional: int = 0) -> Wrapper:
    """Return a wrapper whose words stay before the program."""

    def take(launch: Launch, words: Words) -> Words:
        _given, rest = options.parse(words[1:])
        count = positional if options is not _TASKSET or not any(g.name == "--cpu-list" for g in _given) else 0
        rest = rest[count:]
        kept = list(words[: len(words) - len(rest)])
        launch.prefix += [word for word in kept if word.text != "--"]
        return rest

    return take


def _environment_of(options: Options, skipped: int) -> Wrapper:
    """Return a program that starts another one in an environment of Python's that it keeps."""

    def take(launch: Launch, words: Words) -> Words:
        given, rest = options.parse(words[1 + skipped :])
        name = next((option.value.text for option in given if option.name in ("--name", "--prefix")), "")
        said = launch.enter(" ".join(word.text for word in words[: 1 + skipped]), words[0])
        message = _("the interpreter is the environment's own, or run.python")
        launch.leave_out(said, message, _python_hint(words[0].text, name), is_warning=True)
        if any(option.name == "--module" for option in given):
            return [Word("python", words[0].mark), Word("-m", words[0].mark), *rest]
        return rest

    return take


def _python_hint(program: str, name: str) -> str:
    if program == "uv":
        return _("Write run.python: the path of .venv/bin/python on the hosts.")
    shown = name or "NAME"
    return _("Write run.python: what `{command}` prints on a host.").format(
        command=f"{program} run {'-n ' if '/' not in shown else '-p '}{shown} which python"
    )


def _container(launch: Launch, words: Words) -> Words:
    """Take `apptainer exec --nv image.sif`: the image, and that it is this engine's."""
    given, rest = _CONTAINER.parse(words[2:])
    if not rest:
        return rest
    take_image(launch, launch.enter(f"{words[0].text} exec", rest[0]), "apptainer")
    for option in given:
        _bind(launch, option)
    return rest[1:]


def _bind(launch: Launch, option: Given) -> None:
    said = launch.take(f"apptainer {option.name}", option)
    if option.name in ("--nv", "--rocm", "--contain", "--containall", "--cleanenv", "--no-home"):
        return
    if option.name == "--bind":
        take_mounts(launch, said)
    else:
        hint = _("Write run.workdir.") if option.name == "--pwd" else _("Write run.container.options.")
        launch.leave_out(said, _("dttui starts the container"), hint)


def _nsys(launch: Launch, words: Words) -> Words:
    """Keep `nsys profile -w true -o out` before the program; each of its options has a value."""
    at = 2 if words[1:2] and words[1].text in ("profile", "launch") else 1
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        has_value_with_it = "=" in text if text.startswith("--") else len(text) > 2
        at += 1 if has_value_with_it else 2
    launch.prefix += words[:at]
    return words[at:]


def script_before_dashes(launch: Launch, words: Words) -> Words | None:
    """Take `bash bind.sh --cpu=exclusive -- python …`, which starts what follows its dashes; `None` for no such."""
    texts = [word.text for word in words]
    if "--" not in texts:
        return None
    at = texts.index("--")
    launch.prefix += list(words[: at + 1])
    return words[at + 1 :]


_TWO_WORDS: dict[tuple[str, str], Wrapper] = {
    ("uv", "run"): _environment_of(_UV, 1),
    ("poetry", "run"): _environment_of(Options("poetry run"), 1),
    ("pdm", "run"): _environment_of(Options("pdm run"), 1),
    ("pipenv", "run"): _environment_of(Options("pipenv run"), 1),
    ("pixi", "run"): _environment_of(Options("pixi run", frozenset({"--environment", "--manifest-path"})), 1),
    ("rye", "run"): _environment_of(Options("rye run"), 1),
    ("hatch", "run"): _environment_of(Options("hatch run"), 1),
    **{(name, "run"): _environment_of(_CONDA, 1) for name in ("conda", "mamba", "micromamba")},
    **{(name, verb): _container for name in ("singularity", "apptainer") for verb in ("exec", "run")},
}
_ONE_WORD: dict[str, Wrapper] = {
    "env": _env,
    **dict.fromkeys(
        ("nohup", "exec", "command", "builtin", "setsid", "unbuffer", "catchsegv", "screen", "tini"), _plain
    ),
    "time": _without_options(Options("time", short={"-p": "--portability"})),
    "/usr/bin/time": _without_options(
        Options("time", frozenset({"--format", "--output"}), short={"-f": "--format", "-o": "--output"})
    ),
    "timeout": _timeout,
    "nice": _without_options(_NICE),
    "ionice": _without_options(
        Options("ionice", frozenset({"--class", "--classdata"}), short={"-c": "--class", "-n": "--classdata"})
    ),
    "sudo": _without_options(_SUDO),
    "stdbuf": _without_options(_STDBUF),
    "numactl": _kept(_NUMACTL),
    "taskset": _kept(_TASKSET, 1),
    "nsys": _nsys,
    "ncu": _kept(_NCU),
}


def wrapper_of(words: Words) -> Wrapper | None:
    """Return what takes the program that words begin with for one that starts another; `None` for none."""
    name = posixpath.basename(words[0].text)
    if len(words) > 1 and (found := _TWO_WORDS.get((name, words[1].text))) is not None:
        return found
    return _ONE_WORD.get(words[0].text) or _ONE_WORD.get(name)
