"""known_hosts files in all the shapes in which they are found."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import hmac
import stat
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dttui.transport.ssh.known_hosts import (
    HostKey,
    KnownHosts,
    KnownHostsCache,
    KnownHostsFile,
    append,
    entry_name,
)


def key(seed: str, kind: str = "ssh-ed25519") -> HostKey:
    name = kind.encode()
    body = hashlib.sha256(seed.encode()).digest()
    return HostKey(kind, len(name).to_bytes(4, "big") + name + len(body).to_bytes(4, "big") + body)


def line(hosts: str, which: HostKey, marker: str = "", comment: str = "") -> str:
    return " ".join(filter(None, [marker, hosts, which.type, base64.b64encode(which.blob).decode(), comment])) + "\n"


def hashed(name: str, salt: bytes = b"0123456789abcdefghij") -> str:
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def parse(text: str | bytes) -> KnownHostsFile:
    data = text if isinstance(text, bytes) else text.encode()
    return KnownHostsFile.parse(data, Path("known_hosts"))


def found(text: str | bytes, name: str) -> list[HostKey]:
    return [known.key for known in KnownHosts([parse(text)]).find(name)]


A, B, C = key("a"), key("b"), key("c", "ecdsa-sha2-nistp256")


def test_the_fingerprint_is_the_one_ssh_keygen_prints(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "k")], check=True)
    kind, blob = (tmp_path / "k.pub").read_text().split()[:2]
    printed = subprocess.run(
        ["ssh-keygen", "-l", "-f", str(tmp_path / "k.pub")], check=True, capture_output=True, text=True
    ).stdout
    assert HostKey(kind, base64.b64decode(blob)).fingerprint == printed.split()[1]


def test_a_host_is_found_by_each_of_its_names_in_any_case() -> None:
    text = line("Gpu1.Example.Org,10.0.0.1", A)
    assert found(text, "gpu1.example.org") == [A]
    assert found(text, "GPU1.example.org") == [A]
    assert found(text, "10.0.0.1") == [A]
    assert found(text, "gpu2.example.org") == []


def test_a_port_other_than_22_is_part_of_the_name() -> None:
    assert entry_name("Gpu1", 22) == "gpu1"
    assert entry_name("Gpu1", 2222) == "[gpu1]:2222"
    text = line("[gpu1]:2222", A) + line("gpu1", B)
    assert found(text, "[gpu1]:2222") == [A]
    assert found(text, "gpu1") == [B]


def test_several_types_of_key_for_one_host_are_all_found() -> None:
    assert found(line("gpu1", A) + line("gpu1", C), "gpu1") == [A, C]


def test_hashed_names_are_found_with_and_without_a_port() -> None:
    text = line(hashed("gpu1"), A) + line(hashed("[gpu1]:2222", b"other salt"), B)
    assert found(text, "gpu1") == [A]
    assert found(text, "[gpu1]:2222") == [B]
    assert found(text, "gpu2") == []


def test_what_ssh_keygen_hashes_is_found(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "k")], check=True)
    kind, blob = (tmp_path / "k.pub").read_text().split()[:2]
    path.write_text(f"gpu1,10.0.0.1 {kind} {blob}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, capture_output=True)
    assert b"gpu1" not in path.read_bytes()
    assert [known.key.blob for known in KnownHostsCache().load([path]).find("gpu1")] == [base64.b64decode(blob)]


@pytest.mark.parametrize(
    ("hosts", "name", "matches"),
    [
        ("*.example.org", "gpu1.example.org", True),
        ("*.example.org", "example.org", False),
        ("gpu?", "gpu7", True),
        ("gpu?", "gpu17", False),
        ("*", "anything", True),
        ("*.example.org,!bad.example.org", "good.example.org", True),
        ("*.example.org,!bad.example.org", "bad.example.org", False),
        ("!bad.example.org,*.example.org", "bad.example.org", False),
        ("[*.example.org]:2222", "[gpu1.example.org]:2222", True),
        ("[*.example.org]:2222", "gpu1.example.org", False),
        ("gpu[12]*", "gpu1", False),
        ("gpu[12]*", "gpu[12]x", True),
        ("!gpu1", "gpu2", False),
    ],
)
def test_wildcards_and_negation_follow_ssh(hosts: str, name: str, matches: bool) -> None:
    assert bool(found(line(hosts, A), name)) is matches


def test_a_pattern_made_to_take_for_ever_does_not() -> None:
    started = time.process_time()
    assert found(line("*a" * 200 + "*b", A), "a" * 250) == []
    assert time.process_time() - started < 1


def test_revoked_keys_are_marked_and_certificate_authorities_left_out() -> None:
    text = line("*", A, "@revoked") + line("*.example.org", B, "@cert-authority") + line("gpu1.example.org", C)
    entries = KnownHosts([parse(text)]).find("gpu1.example.org")
    assert [(entry.key, entry.revoked) for entry in sorted(entries, key=lambda entry: entry.line)] == [
        (A, True),
        (C, False),
    ]
    assert parse(text).warnings == []


def test_bad_lines_are_skipped_with_a_warning_each_and_cost_nothing_else() -> None:
    good = line("gpu1", A, comment="a  comment  with spaces").replace(" ssh-", "   ssh-").encode()
    wrong_type = f"gpu5 ssh-rsa {base64.b64encode(A.blob).decode()}\n".encode()
    bad = b"gpu2 ssh-ed25519 not!base64\ngpu3 ssh-ed25519\n@strange gpu4 ssh-ed25519 AAAA\n|2|x|y ssh-ed25519 AAAA\n"
    latin1 = b"g\xfcnther " + line("x", B).encode().partition(b" ")[2] + b"# caf\xe9\n"
    text = b"# comment\n\n" + bad + wrong_type + latin1 + good + b"no newline at the end"
    file = parse(text)
    assert [known.key for known in file.find("gpu1")] == [A]
    assert [warning.split(": ")[0] for warning in file.warnings] == [f"known_hosts:{n}" for n in (3, 4, 5, 6, 7, 11)]


def test_windows_line_ends_are_no_obstacle() -> None:
    assert found(line("gpu1", A).replace("\n", "\r\n"), "gpu1") == [A]


def test_an_entry_says_where_it_stands() -> None:
    assert [known.place for known in parse("\n\n" + line("gpu1", A)).find("gpu1")] == ["known_hosts:3"]


def test_a_file_that_is_missing_or_dev_null_says_nothing(tmp_path: Path) -> None:
    cache = KnownHostsCache()
    paths = [tmp_path / "none", Path("/dev/null"), tmp_path]
    assert cache.load(paths).find("gpu1") == []
    assert cache.warnings == []


def test_a_file_is_read_again_only_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(line("gpu1", A))
    parsed: list[Path] = []
    original = KnownHostsFile.parse

    def counting(data: bytes, where: Path) -> KnownHostsFile:
        parsed.append(where)
        return original(data, where)

    monkeypatch.setattr(KnownHostsFile, "parse", counting)
    cache = KnownHostsCache()
    for _time in range(5):
        assert [known.key for known in cache.load([path, path]).find("gpu1")] == [A]
    assert len(parsed) == 1
    path.write_text(line("gpu1", A) + line("gpu1", C))
    assert [known.key for known in cache.load([path]).find("gpu1")] == [A, C]
    assert len(parsed) == 2


def test_a_thousand_hashed_names_are_looked_up_in_milliseconds() -> None:
    text = "".join(line(hashed(f"host{i}", i.to_bytes(20, "big")), A) for i in range(1000))
    file = parse(text)
    started = time.process_time()
    assert len(file.find("host999")) == 1
    assert time.process_time() - started < 1


def test_appending_makes_a_private_file_and_says_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "config" / "known_hosts"
    append(path, "[gpu1]:2222", A)
    append(path, "[gpu1]:2222", A)
    append(path, "gpu2", B)
    assert path.read_text() == line("[gpu1]:2222", A) + line("gpu2", B)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_appending_ends_a_last_line_that_has_no_end(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(line("gpu1", A).rstrip("\n"))
    append(path, "gpu2", B)
    assert path.read_text() == line("gpu1", A) + line("gpu2", B)


def test_many_who_append_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    threads = [threading.Thread(target=append, args=(path, f"host{i % 20}", key(str(i % 20)))) for i in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 20
    assert {entry.split()[0] for entry in lines} == {f"host{i}" for i in range(20)}
    assert KnownHostsFile.parse(path.read_bytes(), path).warnings == []


def test_a_file_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.symlink_to(path)
    cache = KnownHostsCache()
    assert cache.load([path]).find("gpu1") == []
    assert cache.warnings[0].startswith(f"{path}: ")


def obey_permissions() -> None:
    """Have this thread be refused what its permissions refuse, though it is root's."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    sets[0] &= ~(1 << 1 | 1 << 2)  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
    assert libc.capset(header, sets) == 0


def test_permissions_that_change_are_seen_although_the_file_does_not(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(line("gpu", key("a")))
    path.chmod(0)
    cache = KnownHostsCache()
    with ThreadPoolExecutor(1, initializer=obey_permissions) as thread:
        assert thread.submit(cache.load, [path]).result().find("gpu") == []
        assert any("Permission denied" in warning for warning in cache.warnings)
        path.chmod(0o600)
        assert [known.key for known in thread.submit(cache.load, [path]).result().find("gpu")] == [key("a")]
        assert cache.warnings == []
        path.chmod(0)
        assert thread.submit(cache.load, [path]).result().find("gpu") == []
