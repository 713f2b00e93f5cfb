"""Files that are neither YAML nor JSON, and what no YAML reader can read: told by their names and first lines.

The name counts first, where it is of one kind only; then what nothing else begins with.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass

from dttui.i18n import N_, _
from dttui.spec.dialects.products.product_kind import BY_COMMAND
from dttui.spec.problems import DocumentError, Problem, printable

_EMPTY = re.compile(r"[ \t]*(?:#[^\n]*)?\r?\n")


@dataclass(frozen=True)
class ProductText:
    """A file that is looked at."""

    text: str
    name: str
    """Without directories."""
    head: str
    """Its text from the first line on that is neither empty nor a comment."""

    @classmethod
    def of(cls, text: str, path: str) -> ProductText:
        """Return a file of a text and a path."""
        at = 0
        while (empty := _EMPTY.match(text, at)) is not None:
            at = empty.end()
        return cls(text, posixpath.basename(path), text[at:].lstrip())


Tells = Callable[[ProductText], bool]
"""Whether a file is of a kind."""
_WHOLE = re.ASCII | re.MULTILINE


@dataclass(frozen=True)
class TextKind:
    """A kind of file that is told by its text."""

    title: str
    """What people call one, with its article."""
    tells: Tells
    remedy: str = BY_COMMAND
    """What to do."""

    def refusal(self, text: str, name: str) -> Problem:
        """Return that a file is of this kind, and what to do, at the first line that says something."""
        lines = text.splitlines()
        number = next((number for number, line in enumerate(lines, 1) if _says(line)), 1)
        message = _("this is {kind}").format(kind=_(self.title))
        line = printable(lines[number - 1]) if lines else ""
        hint = _(self.remedy).format(file=printable(name))
        return Problem(name, message, hint, line=number, column=1, source_line=line)

    def refuse(self, text: str, name: str) -> DocumentError:
        """Return the error for such a file."""
        return DocumentError([self.refusal(text, name)])


def _says(line: str) -> bool:
    return bool(line.strip()) and (not line.lstrip().startswith("#") or line.startswith("#!"))


def _named(pattern: str) -> Tells:
    whole = re.compile(pattern, re.IGNORECASE)
    return lambda file: whole.fullmatch(file.name) is not None


def _begins(pattern: str) -> Tells:
    """Return what tells a file by its first line that is no comment."""
    begin = re.compile(pattern, re.ASCII)
    return lambda file: begin.match(file.head) is not None


def _either(*tells: Tells) -> Tells:
    return lambda file: any(tell(file) for tell in tells)


_TARGET = re.compile(
    r"^(?:\.PHONY|[A-Za-z_][\w./%-]*)(?:[ \t]+[\w./%-]+)*[ \t]*::?(?![=/])[^\n]*\n(?:[ \t]*#[^\n]*\n|\n)*\t", _WHOLE
)
_TEMPLATE = re.compile(
    r"(?<!\$)\{\{-?[ \t]{0,20}"
    r"(?:[^{}\n]{0,200}\.(?:Values|Release|Chart|Capabilities)\b|(?:include|template|define)\s+\")"
)
_NOTEBOOK = r'\{\s*"(?:cells|nbformat|metadata)"\s*:(?=[\s\S]*"(?:cell_type|nbformat)")'
_IMAGE = r"(?:ARG [^\n]*\n)*FROM\s+\S+[^\n]*\n"
_TERRAFORM = r'(?:resource|provider|terraform|variable)\s+(?:"[^"]+"\s+)*\{'
_JENKINS = r"pipeline\s*\{|node\s*(?:\(|\{)|@Library"
_TOML = r"\[\[[\w.\"-]+\]\][ \t]*\r?\n|[\w.-]+[ \t]+=[ \t]+(?:[\"'\[{]|true\b|false\b|-?\d)"
_INI = r"\[[^\]\n]+\][ \t]*\r?\n(?:[ \t]*(?:[#;][^\n]*)?\r?\n)*[\w.-]+[ \t]*[=:]"
_PYTHON = re.compile(r"#!\s*\S*(?:env\s+)?python[\d.]*\b", re.ASCII)
_IMPORTS = re.compile(r"import \w[\w.]*(?:$|\s|,)|from [\w.]+ import ", re.ASCII)
_TORCHTITAN = re.compile(r"^\[(?:parallelism|training|job|activation_checkpoint|metrics)\][ \t]*$", _WHOLE)


def _is_makefile(file: ProductText) -> bool:
    if re.fullmatch(r"(gnu)?makefile(\..*)?|.*\.(mk|mak|make)", file.name, re.IGNORECASE):
        return True
    is_plain = re.search(r"\.(?!txt$)\w+$", file.name) is None and not file.text.startswith("#!")
    return is_plain and _TARGET.search(file.text) is not None


def _is_torchtitan(file: ProductText) -> bool:
    return _is_toml(file) and len(set(_TORCHTITAN.findall(file.text))) >= 3


def _is_toml(file: ProductText) -> bool:
    if file.name.endswith(".toml"):
        return True
    return "." not in file.name.strip(".") and re.match(_TOML, file.head, re.ASCII) is not None


def _is_python(file: ProductText) -> bool:
    if re.search(r"\.pyw?$", file.name):
        return True
    return "." not in file.name and (_PYTHON.match(file.text) or _IMPORTS.match(file.head)) is not None


def _is_helm_template(file: ProductText) -> bool:
    return not file.name.endswith((".sh", ".py")) and _TEMPLATE.search(file.text) is not None


TEXT_KINDS = (
    TextKind(
        N_("a Jupyter notebook"),
        _either(_named(r".*\.ipynb"), _begins(_NOTEBOOK)),
        N_("Make a script of it first: jupyter nbconvert --to script {file}."),
    ),
    TextKind(N_("a Python script"), _is_python, N_("Import its command: dttui import -- torchrun {file}.")),
    TextKind(N_("a Makefile"), _is_makefile, N_("Import the command of its target: `make -n TARGET` prints it.")),
    TextKind(
        N_("a Dockerfile"),
        _either(_named(r"(docker|container)file(\..*)?|.*\.(docker|container)file"), _begins(_IMAGE)),
        N_("A job names an image that the hosts have: run.container. Import the command: dttui import -- COMMAND."),
    ),
    TextKind(N_("a definition of an Apptainer image"), _begins(r"Bootstrap:\s*\w+")),
    TextKind(N_("a Jenkinsfile"), _either(_named(r"jenkinsfile(\..*)?"), _begins(_JENKINS))),
    TextKind(
        N_("a template of Helm"),
        _is_helm_template,
        N_("Render it, helm template CHART > FILE, and import what comes out of it."),
    ),
    TextKind(N_("a Terraform file"), _either(_named(r".*\.(tf|hcl|tfvars)"), _begins(_TERRAFORM))),
    TextKind(N_("a batch file of Windows"), _either(_named(r".*\.(bat|cmd|ps1)"), _begins(r"(?i:@echo off)"))),
    TextKind(
        N_("a configuration of torchtitan"),
        _is_torchtitan,
        N_("Import the command: dttui import -- torchrun -m torchtitan.train --job.config_file {file}."),
    ),
    TextKind(N_("a TOML file of a program of its own"), _is_toml),
    TextKind(N_("an INI file of a program of its own"), _begins(_INI)),
    TextKind(N_("a web page"), _begins(r"<(?:!DOCTYPE|html)\b"), N_("Save the file itself.")),
    TextKind(N_("an XML file"), _begins(r"<\?xml\b")),
    TextKind(
        N_("a Markdown text"),
        _either(_named(r".*\.(md|rst|markdown|mdx)"), _begins("```")),
        N_("Import the command that is in it: dttui import -- COMMAND."),
    ),
    TextKind(N_("a table"), _named(r".*\.(csv|tsv)")),
)
"""Kinds that are refused."""


@dataclass(frozen=True)
class BatchSystem:
    """A scheduler whose scripts are followed, and whose directives are not carried over."""

    title: str
    directive: re.Pattern[str]


SCHEDULERS = (
    BatchSystem("PBS", re.compile(r"^#PBS\s+-", re.MULTILINE)),
    BatchSystem("LSF", re.compile(r"^#BSUB\s+-", re.MULTILINE)),
    BatchSystem("SGE", re.compile(r"^#\$\s+-\w", re.MULTILINE)),
    BatchSystem("Cobalt", re.compile(r"^#COBALT\s+-", re.MULTILINE)),
    BatchSystem("Fujitsu TCS", re.compile(r"^#PJM\s+-", re.MULTILINE)),
)
"""Slurm's are carried over, and so not here."""


def text_kind(text: str, name: str) -> TextKind | None:
    """Return the kind of a file that is refused by its text or name; `None` where it is of none."""
    file = ProductText.of(text, name)
    return next((kind for kind in TEXT_KINDS if kind.tells(file)), None)


def scheduler_of(text: str) -> BatchSystem | None:
    """Return the scheduler whose directives a script has, other than Slurm; `None` for none."""
    if re.search(r"^#SBATCH\s", text, re.MULTILINE):
        return None
    return next((scheduler for scheduler in SCHEDULERS if scheduler.directive.search(text)), None)
