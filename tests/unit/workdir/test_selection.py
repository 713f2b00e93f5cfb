"""Which files of a working directory go to the hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dttui.errors import UsageError
from dttui.workdir import selection
from dttui.workdir.beneath import LinkError, Root
from dttui.workdir.gitignore import list_with_git
from dttui.workdir.selection import UploadFile, survey


def names(directory: Path) -> list[str]:
    return [file.relative for file in survey(directory).files]


def content_of(file: UploadFile) -> bytes:
    with file.open() as stream:
        return stream.read()


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
    listed = os.listdir

    def listdir(place: int) -> list[str]:
        found = listed(place)
        (tmp_path / "gone.py").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(os, "listdir", listdir)
    assert names(tmp_path) == ["train.py"]


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MAX_FILES", 2)
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


def test_a_tracked_directory_that_became_a_link_sends_nothing_from_outside(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    write(work, "train.py", "data/a.txt", "data/b.txt", "up/down/c.txt", "moved/d.txt", "hidden/e.txt")
    git(work, "init", "-q")
    git(work, "add", ".")
    write(outside, "a.txt", "down/c.txt")
    for name in ("data", "up", "moved", "hidden"):
        shutil.rmtree(work / name)
    (work / "data").symlink_to(outside)
    (work / "up").symlink_to("../outside")
    write(work, "there/d.txt", ".private/e.txt")
    (work / "moved").symlink_to("there")
    (work / "hidden").symlink_to(".private")
    found = survey(work)
    assert {file.relative for file in found.files} == {"moved/d.txt", "train.py", "there/d.txt"}
    assert found.left_out == (".private", "data", "hidden", "up")


def test_a_submodule_below_a_link_that_leads_out_is_not_entered(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    write(work, "train.py", "libs/sub/a.py")
    git(work / "libs/sub", "init", "-q")
    git(work / "libs/sub", "add", ".")
    git(work / "libs/sub", "commit", "-qm", "x")
    git(work, "init", "-q")
    git(work, "add", ".")
    assert set(names(work)) == {"train.py", "libs/sub/a.py"}
    (work / "libs").rename(outside)
    (work / "libs").symlink_to(outside)
    assert names(work) == ["train.py"]
    assert survey(work).left_out == ("libs",)


@pytest.mark.parametrize("with_git", [True, False])
def test_every_way_in_which_a_link_leads_out_is_named_and_those_that_stay_inside_go(
    tmp_path: Path, with_git: bool
) -> None:
    work, alias, outside = tmp_path / "work", tmp_path / "alias", tmp_path / "outside"
    write(work, "a.py", "deep/b.py", ".env")
    write(tmp_path / "work-too", "c.txt")
    write(outside, "passwords")
    alias.symlink_to("work")
    inside = {
        "absolute.py": str(work / "a.py"),
        "by_alias.py": str(alias / "a.py"),
        "out_and_in.py": "../work/a.py",
        "deep/up.py": "../a.py",
        "twice.py": "absolute.py",
        "by_proc.py": f"/proc/self/root{work}/a.py",
    }
    away = {
        "absolute": str(outside / "passwords"),
        "up": "../outside/passwords",
        "chain": "up",
        "sibling": "../work-too/c.txt",
        "deep/up": "../../outside/passwords",
        "magic": "/proc/self/environ",
        "root": f"/proc/self/root{outside}/passwords",
        "folder": "../outside",
        "itself": ".",
        "dead": "/nonexistent/of/this/host",
        "private": ".env",
    }
    for name, target in {**inside, **away}.items():
        (work / name).symlink_to(target)
    (work / "loop").symlink_to("loop")
    (work / "nowhere").symlink_to("missing")
    if with_git:
        git(work, "init", "-q")
    for place in (work, alias):  # A root that is itself a link is what it leads to.
        found = survey(place)
        assert {file.relative for file in found.files} == {"a.py", "deep/b.py", *inside}
        assert set(found.left_out) == {".env", *away}
        contents = {file.relative: content_of(file) for file in found.files}
        assert contents == {name: b"deep/b.py" if name == "deep/b.py" else b"a.py" for name in contents}


def test_pipes_and_sockets_are_neither_sent_nor_waited_for(tmp_path: Path) -> None:
    write(tmp_path, "a.py")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to_pipe").symlink_to("pipe")
    assert names(tmp_path) == ["a.py"]
    (file,) = survey(tmp_path).files
    (tmp_path / "a.py").unlink()
    os.mkfifo(tmp_path / "a.py")
    with pytest.raises(UsageError, match="leads elsewhere now"):
        file.open()


def test_what_is_exchanged_for_a_link_after_the_survey_is_not_read(tmp_path: Path) -> None:
    outside, work = tmp_path / "outside", tmp_path / "work"
    write(work, "a.py", "deep/down/b.py")
    write(outside, "a.py", "down/b.py", "deep/down/b.py", "b.py")
    files = {file.relative: file for file in survey(work).files}
    for name, target in {"a.py": "a.py", "deep": ".", "deep/down": "../../outside/down"}.items():
        (work / name).rename(tmp_path / "aside")
        (work / name).symlink_to(outside / target if not target.startswith("..") else target)
        with pytest.raises(UsageError, match=r"(a|b)\.py was a file of the working directory, and leads elsewhere now"):
            files["a.py" if name == "a.py" else "deep/down/b.py"].open()
        (work / name).unlink()
        (tmp_path / "aside").rename(work / name)
    work.rename(tmp_path / "moved")
    work.symlink_to(outside)
    assert content_of(files["a.py"]) == b"a.py"  # The directory that was surveyed, wherever it is.
    shutil.rmtree(tmp_path / "moved")
    with pytest.raises(UsageError, match="cannot read"):
        files["a.py"].open()


def test_no_name_leads_above_the_root(tmp_path: Path) -> None:
    write(tmp_path, "outside/a.py", "work/a.py", "work/down/b.py")
    root = Root(tmp_path / "work")
    for name in ("../outside/a.py", "down/../../outside/a.py", "..", "../work/a.py", "down/../a.py"):
        with pytest.raises(LinkError):
            root.open(name)
    for name in ("..", "../outside", "down/../../outside"):
        with pytest.raises(LinkError):
            root.entries(name)
    with pytest.raises(OSError, match=r"."):
        root.open(str(tmp_path / "outside/a.py"))


def test_a_gitignore_that_is_a_link_is_not_read_as_git_has_it(tmp_path: Path) -> None:
    write(tmp_path / "work", "a.log")
    (tmp_path / "rules").write_text("*.log\n")
    (tmp_path / "work/.gitignore").symlink_to("../rules")
    assert names(tmp_path / "work") == ["a.log"]


HELD_BACK = """
.netrc .ssh/config prod.env id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk id_xmss id_rsa_github
id_ed25519.old ID_DSA ssh_host_ed25519_key server.key SERVER.KEY server.pem store.p12 store.pfx store.jks
release.keystore key.ppk key.p8 vault.kdbx credentials aws/credentials credentials.json credentials.csv
gcp-credentials.json application_default_credentials.json kubeconfig kubeconfig.yaml dev.kubeconfig netrc _netrc
"""
NEEDED = """
keys.py key.py credentials.py kubeconfig.py id_rsa.py tokenizer.model id_rsa.pub id_ed25519_sk.pub ssh_host_rsa_key.pub
monkey keyboard.txt keys.txt id_map.json identity.txt rsa.txt environment.yml env.py credential_helper.sh model.keys
key_value.json p12.txt publickey.asc
"""


def test_what_may_hold_keys_stays_here_and_what_a_script_needs_goes(tmp_path: Path) -> None:
    write(tmp_path, *HELD_BACK.split(), *NEEDED.split())
    found = survey(tmp_path)
    assert {file.relative for file in found.files} == set(NEEDED.split())
    assert {*found.left_out} == {name.replace(".ssh/config", ".ssh") for name in HELD_BACK.split()}


def test_the_reference_names_all_that_is_held_back() -> None:
    text = Path("docs/reference.md").read_text()
    section = text.partition("### What is sent")[2].partition("\n### ")[0]
    missing = [
        item for item in (*selection.PRIVATE, *selection.NOT_PRIVATE) if item != ".*" and f"`{item}`" not in section
    ]
    assert missing == []


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


@pytest.mark.parametrize("name", ["..", "below/..", "../x"])
def test_the_status_of_a_name_that_leads_above_the_root_is_not_given(tmp_path: Path, name: str) -> None:
    (tmp_path / "root" / "below").mkdir(parents=True)
    (tmp_path / "x").write_text("above")
    with pytest.raises(LinkError):
        Root(tmp_path / "root").status(name)


@pytest.mark.parametrize(
    "rules", ["\ufefffirst.txt\n", "first.txt\r\nsecond.txt\r\n", "# a\x0cfirst.txt\n", "a\u2028*\n"]
)
def test_without_git_lines_are_what_git_takes_for_lines(tmp_path: Path, rules: str) -> None:
    (tmp_path / ".gitignore").write_text(rules, newline="")
    write(tmp_path, "first.txt", "second.txt", "third.txt")
    without = set(names(tmp_path))
    git(tmp_path, "init", "-q")
    assert list_with_git(tmp_path) is not None
    assert set(names(tmp_path)) == without
