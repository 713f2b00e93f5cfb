"""Whether a file is a shell script or a command line, told by its name and its first words."""

from __future__ import annotations

import posixpath
import re

from dttui.spec.dialects.commands.launcher_options import names

_NAMES = (".sh", ".bash", ".slurm", ".sbatch", ".sl", ".batch", ".zsh", ".csh", ".fish")
_SHEBANG = re.compile(r"#!\s*\S*?(?:env\s+(?:-S\s+)?)?(bash|sh|dash|ash|ksh|zsh|csh|tcsh|fish)\b")
_FIRST_WORDS = names(
    """
    torchrun accelerate accelerate-launch deepspeed horovodrun mpirun mpiexec srun sbatch python python3 uv
    conda mamba micromamba poetry pdm pipenv pixi env nohup numactl taskset time timeout nice sudo bash sh
    set export source cd module eval exec ulimit unset llamafactory-cli lmf swift megatron axolotl xtuner
    trl tune composer colossalai torchx fabric lightning apptainer singularity nsys echo mkdir pip git
    """
)
_ASSIGNMENT = re.compile(r"(?:export\s+)?[A-Za-z_]\w*\+?=(?:\"[^\"]*\"|'[^']*'|[^\s\"']*)(?:\s+|$|;)")
_HOST = re.compile(r"[\w.-]+(\s+(slots|max[_-]slots)=\d+)*")
"""A line of a hostfile, whatever the host is called."""
PROMPT = re.compile(r"^([ \t]*)[$%>] (?=\S)", re.MULTILINE)
"""What documentation puts before a command."""


def is_script(text: str, name: str) -> bool:
    """Whether text is a shell script or a command line."""
    if posixpath.splitext(name)[1] in _NAMES or _SHEBANG.match(text) or re.search(r"^#SBATCH\s", text, re.MULTILINE):
        return True
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    rest = PROMPT.sub(r"\1", first).strip()
    while (assignment := _ASSIGNMENT.match(rest)) is not None:
        rest = rest[assignment.end() :]
        if not rest.strip(" \\"):
            return True
    if _HOST.fullmatch(rest):
        return False
    word = re.split(r"[\s;]", rest, maxsplit=1)[0]
    return posixpath.basename(word) in _FIRST_WORDS and not word.endswith(":")
