"""Adding environments to a file that a person wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dttui.errors import UsageError
from dttui.inventory import Environment, add_environments, load_inventory
from dttui.spec.problems import DocumentError

NEW = (Environment(name="gpu9", host="gpu9"), Environment(name="中文 #1", host="10.0.0.9", port=2222))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "config" / "dttui" / "inventory.yaml"
    added = add_environments(path, NEW)
    assert load_inventory(path) == added
    assert added.environments == NEW
    assert mode_of(path) == 0o600
    assert os.listdir(path.parent) == ["inventory.yaml"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# mine\n",
        "environments:\n",
        "environments: []\n",
        "environments: [{name: a, host: a}]\n",
        "environments: [\n  {name: a, host: a}, # x\n]\n",
        "environments:\n- name: a\n  host: a",
        "environments:\n  - name: a\n    host: a  # first\n\n  # after\n\ndatasets: []\n",
        "datasets: []\n# end\n",
        "datasets: []",
        "environments:\r\n  - {name: a, host: a}\r\ndatasets: []\r\n",
        "environments:\n  - name: a\n    host: a\n    image: |-\n      x\n\n\n...\n",
        "---\nenvironments:\n    -   name: a\n        host: a\n        resources:\n          gpu:\n"
        "            count: 2\n",
        "environments:\n  - {name: a, host: a, resources: &r {gpu: {count: 1}}}\n"
        "  - name: b\n    host: b\n    resources: *r\n# end\n",
    ],
)
def test_what_was_there_stays_and_what_is_new_comes_after_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_bytes(text.encode())
    before = load_inventory(path)
    after = add_environments(path, NEW)
    assert load_inventory(path) == after
    assert after.environments == (*before.environments, *NEW)
    written = path.read_bytes().decode()
    rest = iter(written)
    assert all(character in rest for character in text)  # the old text is a subsequence of the new one
    assert ("\r\n" in text) == ("\r\n" in written)
    assert written.replace("\r\n", "").count("\r") == 0


def test_a_second_addition_joins_the_first(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    add_environments(path, NEW[:1])
    add_environments(path, NEW[1:])
    assert path.read_text() == (
        "environments:\n  - name: gpu9\n    host: gpu9\n  - name: '中文 #1'\n    host: 10.0.0.9\n    port: 2222\n"
    )


@pytest.mark.parametrize("text", ["{}\n", "environments: ~\n"])
def test_a_form_that_cannot_be_added_to_is_left_alone_and_the_lines_are_shown(text: str, tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match="cannot be added to") as caught:
        add_environments(path, NEW)
    assert "host: gpu9" in caught.value.hint
    assert path.read_text() == text


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("environments: [{name: a, id: gpu9, host: a}]\n")
    with pytest.raises(UsageError, match="has these already: gpu9"):
        add_environments(path, NEW)


def test_a_broken_inventory_is_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("environments: [{name: a}]\n")
    with pytest.raises(DocumentError, match="how it is reached is missing: host, exec"):
        add_environments(path, NEW)


def test_a_link_and_a_mode_are_kept(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.yaml"
    target.write_text("environments:\n")
    target.chmod(0o640)
    link = tmp_path / "inventory.yaml"
    link.symlink_to(target)
    add_environments(link, NEW)
    assert link.is_symlink()
    assert mode_of(target) == 0o640
    assert len(load_inventory(target).environments) == 2


def test_a_directory_that_cannot_be_made_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        add_environments(tmp_path / "file" / "inventory.yaml", NEW)
