"""Which files of a working directory go to the hosts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dttui.errors import UsageError
from dttui.services.launch import upload
from dttui.services.launch.gitignore import list_with_git
from dttui.services.launch.upload import survey


def names(directory: Path) -> list[str]:
    return [file.relative for file in survey(directory).files]


def write(directory: Path, *relative: str) -> None:
    for name in relative:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(name)


def test_secrets_stay_here_and_are_named(tmp_path: Path) -> None:
    secret = [".aws/credentials", ".env", "keys/id_rsa", "keys/server.PEM", "prod.env"]
    write(tmp_path, "train.py", "keys/readme.md", ".git/config", "__pycache__/x.pyc", *secret)
    assert names(tmp_path) == ["keys/readme.md", "train.py"]
    assert sorted(survey(tmp_path).left_out) == [".aws", ".env", "keys/id_rsa", "keys/server.PEM", "prod.env"]


def test_links_are_followed_only_to_what_would_be_sent_anyway(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    write(outside, "passwords.txt", "folder/file")
    write(work, "a.py", ".env")
    (work / "alias.py").symlink_to("a.py")
    (work / "hidden.txt").symlink_to(".env")
    (work / "away.txt").symlink_to(outside / "passwords.txt")
    (work / "folder").symlink_to(outside / "folder")
    (work / "loop").symlink_to("loop")
    assert names(work) == ["a.py", "alias.py"]
    assert set(survey(work).left_out) == {".env", "hidden.txt", "away.txt", "folder"}


def test_a_name_that_is_not_utf8_is_told_in_letters_that_can_be_shown(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"caf\xe9.py")).write_text("")
    assert survey(tmp_path).misnamed == ("caf\N{REPLACEMENT CHARACTER}.py",)
    assert names(tmp_path) == []


def test_a_file_that_vanishes_while_it_is_looked_at_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "gone.py", "train.py")
    looks, look = 0, Path.stat

    def stat(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        nonlocal looks
        looks += path.name == "gone.py" and follow_symlinks
        if looks > 1:
            path.unlink(missing_ok=True)
        return look(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", stat)
    assert "train.py" in names(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_FILES", 2)
    write(tmp_path, "a", "b", "c")
    with pytest.raises(UsageError, match=r"too large to send: more than 2 files or 2000 MB; [abc] alone has 0 MB"):
        survey(tmp_path)


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(directory), *identity, *arguments], check=True, capture_output=True)


def test_of_a_checkout_goes_what_git_keeps_and_what_is_new(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("out/\n*.log\n")
    write(tmp_path, "train.py", "kept.log", "gone.py", ".env", "sub/.gitignore", "sub/deep/x.py", "venv/lib.py")
    git(tmp_path, "add", "-f", "train.py", "kept.log", "gone.py")
    git(tmp_path, "commit", "-qm", "x")
    (tmp_path / "gone.py").unlink()
    write(tmp_path, "new.py", "out/model.pt", "other.log", "cache.pyc")
    found = survey(tmp_path)
    assert {file.relative for file in found.files} == {"train.py", "kept.log", "new.py", "sub/deep/x.py", "cache.pyc"}
    assert found.left_out == (".env", ".gitignore", "other.log", "out", "sub/.gitignore")
    (tmp_path / "work").mkdir()
    write(tmp_path, "work/a.py", "work/b.log")
    assert names(tmp_path / "work") == ["a.py"]  # A part of a checkout is one too.


def test_a_directory_that_a_checkout_around_it_ignores_is_sent_as_it_is(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("runs/\n")
    write(tmp_path, "runs/one/train.py")
    assert names(tmp_path / "runs/one") == ["train.py"]


def test_a_repository_inside_another_is_sent_too(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, "a.py", "inner/b.py")
    git(tmp_path / "inner", "init", "-q")
    assert set(names(tmp_path)) == {"a.py", "inner/b.py"}


IGNORED = """\
# a comment
*.log
!keep.log
/top.txt
build/
docs/*.html
**/cache/**
a/**/z
data[0-9].bin
data[!0-9].txt
\\#hash
\\!bang
trailing   
space\\ 
sub/dir/
[
*.t?r
"""
PATHS = """
x.log deep/x.log keep.log deep/keep.log top.txt deep/top.txt build/o.txt deep/build/o.txt buildx docs/i.html
docs/deep/i.html cache/x deep/cache/x/y a/z a/b/z a/b/c/z b/z data1.bin dataX.bin data1.txt dataX.txt #hash !bang
trailing space sub/dir/x other/sub/dir/x sub/dirx x.tar x.tr train.py inner/own.txt inner/ours.txt
inner/deep/own.txt
"""


def test_without_git_its_rules_are_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitignore").write_text(IGNORED)
    write(tmp_path, *PATHS.split(), "space ")
    (tmp_path / "inner/.gitignore").write_text("/own.txt\n!*.log\n")
    write(tmp_path, "inner/kept.log")
    without = set(names(tmp_path))
    git(tmp_path, "init", "-q")
    assert list_with_git(tmp_path) is not None
    assert set(names(tmp_path)) == without
    assert {"keep.log", "deep/top.txt", "inner/deep/own.txt", "inner/kept.log", "dataX.bin", "sub/dirx"} <= without
    assert not {"x.log", "top.txt", "deep/build/o.txt", "a/b/c/z", "deep/cache/x/y", "#hash", "trailing"} & without
    monkeypatch.setenv("PATH", "/nonexistent")
    assert list_with_git(tmp_path) is None
    assert set(names(tmp_path)) == without
