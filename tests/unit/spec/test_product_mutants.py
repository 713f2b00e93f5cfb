"""Files of other products with something broken in each: a job or mistakes with their places, and nothing else."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from dttui.spec import DocumentError
from dttui.spec.dialects.products.yaml_documents import MOST_DOCUMENTS, read_documents
from dttui.spec.importing import merge, translate_file
from dttui.spec.loader import parse_document
from tests.unit.spec.test_kubeflow_jobs import MPI, PYTORCH, TRAIN
from tests.unit.spec.test_product_tasks import DSTACK, SKY, TORCHX
from tests.unit.spec.test_training_files import DDP, FLAGSCALE, LITGPT, LLAMA_FACTORY, TRAIN_PART, TUNE

MATERIAL = Path(__file__).parents[2] / "material" / "imports" / "fit"
OF_PRODUCTS = [
    path
    for path in sorted(MATERIAL.iterdir())
    if path.suffix in (".yaml", ".yml", ".mk", ".torchxconfig") and path.name != "index.yaml"
]
TEXTS = [SKY, DSTACK, TORCHX, TRAIN, PYTORCH, MPI, FLAGSCALE, TRAIN_PART, DDP, LLAMA_FACTORY, TUNE, LITGPT]
JUNK = (
    *("null", "[]", "{}", "-1", "1e400", "true", "[1, [2]]", "{a: {b: c}}", "99999999999999999999", '"\\0"', "''"),
    *("${{ x }}", "!!int a", "&a [*a]", "'a\nb'", "../../etc/passwd", "*x", "日本", "|", ">-", "\U000f0001"),
)
MUTANTS = 25


def mutant(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        line = lines[at]
        match rng.randrange(6):
            case 0:
                lines[at : at + rng.randint(1, 4)] = [""]
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2:
                lines[at] = f"{line.partition(':')[0]}: {rng.choice(JUNK)}"
            case 3:
                lines[at] = " " * rng.randint(0, 6) + line.lstrip()
            case 4 if line:
                place = rng.randrange(len(line))
                lines[at] = line[:place] + rng.choice("'\"{}[]$`\\|&;<>#*!%\t😀\x85") + line[place + 1 :]
            case _:
                lines[at] = line[: rng.randint(0, len(line))]
    return "\n".join(lines)


def look(text: str, name: str) -> None:
    """Import a text, and read it as a job file; its problems have to be in it."""
    try:
        merge([translate_file(text, name)], "x")
    except DocumentError as error:
        count = len(text.splitlines()) + 1
        assert error.problems, text  # noqa: PT017 - also where nothing is raised, nothing else may be
        assert all(problem.line is None or 1 <= problem.line <= count for problem in error.problems), text  # noqa: PT017
    with suppress(DocumentError):
        parse_document(text, name)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_broken_file_is_a_job_or_mistakes(text: str) -> None:
    rng = random.Random(text)
    for _ in range(MUTANTS):
        look(mutant(text, rng), "f")


@pytest.mark.parametrize("path", OF_PRODUCTS, ids=lambda path: path.name)
def test_a_broken_file_that_people_have_is_a_job_or_mistakes(path: Path) -> None:
    text = path.read_text()
    rng = random.Random(path.name)
    for _ in range(3):
        look(mutant(text, rng), path.name)


@pytest.mark.parametrize(
    "text",
    [
        "run: |\n" + "  torchrun train.py\n" * 50_000,
        "num_nodes: 2\nrun: torchrun " + "a " * 30_000,
        "num_nodes: 100000\nrun: |\n  for i in $SKYPILOT_NODE_IPS; do echo $i; done\n  torchrun train.py\n",
        "type: task\ncommands:\n" + "  - echo a\n" * 20_000 + "  - torchrun train.py\n",
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec:\n  trainer:\n    command:\n"
        + "    - a\n" * 20_000,
        "a: 1\n---\n" * (MOST_DOCUMENTS + 1),
        "\n" * 500_000 + "num_nodes: 1\nrun: torchrun train.py\n",
        "---\n" * 200_000,
        "a:\n" * 100_000,
        "#" * 1_000_000,
        "[component:dist.ddp]\nscript=" + "a" * 900_000,
    ],
    ids=range(11),
)
def test_a_huge_file_is_a_job_or_mistakes_within_seconds(text: str) -> None:
    look(text, "f")


def test_merge_keys_of_other_programs_are_followed() -> None:
    text = "base: &a {x: 1, y: [2]}\nother: &b {x: 3, z: 4}\nown:\n  <<: [*a, *b]\n  y: 5\n"
    (source,) = read_documents(text, "f").sources
    assert source.data["own"] == {"y": 5, "x": 1, "z": 4}
    assert source.mark(("own", "z")).line == 2
    assert not source.problems


def test_documents_of_a_file_keep_their_places() -> None:
    first, second = read_documents("# a\n---\nx: 1\n...\n---  # b\ny:\n  z: 2\n---\n# nothing\n", "f").sources
    assert (first.data, second.data) == ({"x": 1}, {"y": {"z": 2}})
    assert (first.mark(("x",)).line, second.mark(("y", "z")).line) == (3, 7)
    assert second.lines[6] == "  z: 2"
