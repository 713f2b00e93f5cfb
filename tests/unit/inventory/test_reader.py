"""inventory.yaml: what is accepted, and where each mistake is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dttui.inventory import Environment, Inventory, add_environments, load_inventory, parse_inventory
from dttui.inventory.models import Reach
from dttui.spec.problems import DocumentError, format_path

DOCUMENTED = """
environments:
  - name: pytorch-dev-env          # what the checkbox shows
    host: gpu1.example.org
    id: env-001
    kind: jupyter
    zone: beijing-a
    image: pytorch
    resources: {gpu: {count: 2, type: A100, memory: 80GB}, cpu: {cores: 16, memory: 128GB}}
    address: 10.0.0.11
    python: /opt/conda/bin/python
    port_range: 29500-29999
datasets:
  - {id: imagenet, versions: [{id: v1, path: /data/imagenet}]}
"""


def told(text: str) -> list[tuple[int | None, int | None, str, str]]:
    with pytest.raises(DocumentError) as caught:
        parse_inventory(text, "inventory.yaml")
    return [(item.line, item.column, format_path(item.path), item.message) for item in caught.value.problems]


def test_the_documented_inventory_loads(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(DOCUMENTED)
    inventory = load_inventory(path)
    environment = inventory.find("env-001")
    assert environment is inventory.find("pytorch-dev-env")
    assert environment is not None
    assert environment.name == "pytorch-dev-env"
    assert environment.training_address == "10.0.0.11"
    assert environment.ports == (29500, 29999)
    assert not environment.simulated
    dataset = inventory.find_dataset("imagenet")
    assert dataset is not None
    assert dataset.find(None) is dataset.find("v1")
    assert dataset.find("v9") is None


def test_the_agents_own_directory_has_one_spelling() -> None:
    text = "environments: [{name: a, host: h, agent_root: //scratch/./me//a..b/}]"
    assert parse_inventory(text, "x").environments[0].agent_root == "/scratch/me/a..b"
    longest = "/srv/" + "/".join(["d" * 254, "e" * 255, "空" * 85, "f" * 252])
    text = f"environments: [{{name: a, host: h, agent_root: {longest}}}]"
    assert parse_inventory(text, "x").environments[0].agent_root == longest


@pytest.mark.parametrize("text", ["", "# none yet\n", "environments:\n", "environments: []\ndatasets:\n", "{}"])
def test_an_inventory_may_be_empty(text: str) -> None:
    assert parse_inventory(text, "x") == Inventory()


def test_names_and_ids_that_come_again_are_reported_where_they_come_again() -> None:
    text = (
        "environments:\n"
        "  - {name: a, host: h1}\n"
        "  - {name: b, host: h2, id: a}\n"
        "  - {name: c, host: h3, id: x}\n"
        "  - {name: d, host: h4, id: x}\n"
        "  - {name: a, host: h5}\n"
        "datasets:\n"
        "  - {id: d, versions: [{id: v1, path: /a}]}\n"
        "  - {id: d, versions: [{id: v1, path: /b}]}\n"
    )
    assert told(text) == [
        (3, 29, "environments[1].id", 'another environment is called "a" too'),
        (5, 29, "environments[3].id", 'another environment is called "x" too'),
        (6, 12, "environments[4].name", 'another environment is called "a" too'),
        (9, 10, "datasets[1].id", 'dataset "d" is here twice'),
    ]


def test_a_version_that_comes_again_is_reported_where_it_comes_again() -> None:
    text = "datasets:\n  - id: d\n    versions:\n      - {id: v1, path: /a}\n      - {id: v1, path: /b}\n"
    assert told(text) == [(5, 14, "datasets[0].versions[1].id", 'version "v1" is here twice')]


def test_an_id_may_be_the_name_of_its_own_environment() -> None:
    assert parse_inventory("environments: [{name: a, id: a, host: h}]", "x").find("a") is not None


def test_two_environments_on_one_host_and_port_are_the_planners_affair() -> None:
    text = "environments: [{name: a, host: h, port: 22}, {name: b, host: h, port: 22}]"
    assert len(parse_inventory(text, "x").environments) == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("host: -oProxyCommand=evil", 'expected a host name, an address or an ssh alias, found "-oProxyCommand=evil"'),
        ("host: a b", "expected a host name"),
        ("host: h, user: -l", "expected a login name"),
        ("host: h, port: 70000", "expected a number of at most 65535, found 70000"),
        ("host: h, port_range: 10-20", "expected FIRST-LAST"),
        ("host: h, port_range: 29500", "expected FIRST-LAST"),
        *(
            (f"host: h, agent_root: {path}", "absolute path of a directory on the host")
            for path in ("scratch/me", "~/agent", "$HOME/agent", '""', "/", "//./", "/scratch/../etc", '"/a/.."')
        ),
        (f"host: h, agent_root: /{'x' * 5000}", "at most 1,024 bytes"),
        ('host: h, agent_root: "/a\\nb"', "absolute path of a directory on the host"),
        ('host: h, agent_root: "/a\\u202eb"', "absolute path of a directory on the host"),
        pytest.param(f"host: h, agent_root: /{'空' * 86}", "names have at most 255 bytes each", id="long name"),
        ("host: h, resources: {gpu: {count: -1}}", "expected a number of at least 0"),
        ("host: h, resources: {gpus: 2}", "unknown key"),
        ("host: h, zone: 'a\\b'", ""),
        ('host: h, zone: "\\a"', "must consist of printable characters"),
        ("user: li", "how it is reached is missing: host, exec"),
        ("exce: [docker, exec, -i, a]", "unknown key"),
        ("host: null", "expected a host name, an address or an ssh alias, found nothing"),
        ("local: false", "expected a host name, an address or an ssh alias, found nothing"),
        ("exec: docker exec -i a", 'expected a list, found "docker exec -i a"'),
        ("exec: []", "expected a list of at least 1"),
        ("exec: ['']", 'expected the name or path of a program, found ""'),
        ("exec: [-i]", 'expected the name or path of a program, found "-i"'),
        ("exec: [./reach, a]", "a relative path leads elsewhere from another directory"),
        ('exec: [docker, "a\\0b"]', "must not contain a NUL character"),
    ],
)
def test_each_mistake_says_what_was_expected(line: str, words: str) -> None:
    text = f"environments: [{{name: a, {line}}}]"
    if not words:
        assert parse_inventory(text, "x").environments
        return
    assert any(words in message for _line, _column, _path, message in told(text))


def test_a_host_may_be_reached_by_a_command() -> None:
    text = (
        "environments: [{name: a, exec: [docker, exec, -i, train 1, 2], address: 10.0.0.1}, {name: b, exec: [~/reach]}]"
    )
    first, second = parse_inventory(text, "x").environments
    assert (first.reach, first.exec) == (Reach.EXEC, ("docker", "exec", "-i", "train 1", "2"))
    assert first.way == "docker exec -i 'train 1' 2"
    assert (first.host, first.training_address, first.has_training_address) == (None, "10.0.0.1", True)
    assert (second.training_address, second.has_training_address) == ("127.0.0.1", False)
    (third,) = parse_inventory("environments: [{name: c, exec: [x], host: gpu1}]", "x").environments
    assert (third.reach, third.training_address) == (Reach.EXEC, "gpu1")


def test_the_way_to_a_host_follows_from_what_its_entry_says() -> None:
    text = "environments: [{name: a, host: h, port: 2}, {name: b, local: true}, {name: c, local: false, host: h}]"
    assert [(item.reach, item.way) for item in parse_inventory(text, "x").environments] == [
        (Reach.SSH, "h:2"),
        (Reach.LOCAL, "this machine"),
        (Reach.SSH, "h"),
    ]


def test_a_command_written_as_a_line_is_shown_as_the_list_it_should_be() -> None:
    with pytest.raises(DocumentError, match=r"write exec: \[docker, exec, -i, a\]"):
        parse_inventory("environments: [{name: a, exec: docker exec -i a}]", "x")


def test_what_is_said_of_ssh_beside_a_command_is_refused_where_it_stands() -> None:
    text = (
        "environments:\n"
        "  - name: a\n"
        "    exec: [docker, exec, -i, a]\n"
        "    user: li\n"
        "    port: 22\n"
        "    identity_file: ~/k\n"
        "    proxy_jump: j\n"
        "    known_hosts: ~/h\n"
        "    local: true\n"
    )
    found = told(text)
    assert [(line, path.rpartition(".")[2]) for line, _column, path, _message in found] == [
        (4, "user"),
        (5, "port"),
        (6, "identity_file"),
        (7, "proxy_jump"),
        (8, "known_hosts"),
        (9, "local"),
    ]
    messages = [message for _line, _column, _path, message in found]
    assert (
        messages[0]
        == "with `exec`, SSH is not used: the command itself says which user, such as docker exec -i -u NAME"
    )
    assert messages[1] == "with `exec`, SSH is not used: leave `port` out, or `exec`"


def test_an_environment_reached_by_a_command_survives_a_file_and_json(tmp_path: Path) -> None:
    (made,) = parse_inventory("environments: [{name: a, exec: [docker, exec, -i, a]}]", "x").environments
    assert Environment.model_validate_json(made.model_dump_json()) == made
    add_environments(tmp_path / "inventory.yaml", [made])
    assert load_inventory(tmp_path / "inventory.yaml").environments == (made,)


def test_commands_are_not_taken_from_a_file_that_everybody_can_write_to(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("environments: [{name: a, exec: [docker, exec, -i, a]}]")
    path.chmod(0o666)
    with pytest.raises(DocumentError, match="everybody can write to this file") as caught:
        load_inventory(path)
    assert caught.value.problems[0].hint == f"Look what is in it; then: chmod o-w {path}"
    path.chmod(0o664)
    assert load_inventory(path).environments
    path.chmod(0o666)
    path.write_text("environments: [{name: a, host: gpu1}]")
    assert load_inventory(path).environments


def test_numbers_where_names_are_expected_count_as_written() -> None:
    (environment,) = parse_inventory("environments: [{name: 010, host: 1, zone: 3}]", "x").environments
    assert (environment.name, environment.host, environment.zone) == ("010", "1", "3")


def test_a_missing_inventory_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        load_inventory(tmp_path / "inventory.yaml")


def test_thousands_of_environments_load_quickly() -> None:
    lines = [f"  - {{name: gpu-{i}, host: gpu{i}.example.org, resources: {{gpu: {{count: 8}}}}}}" for i in range(5000)]
    text = "environments:\n" + "\n".join(lines)
    began = time.monotonic()
    assert len(parse_inventory(text, "x").environments) == 5000
    assert time.monotonic() - began < 20


def test_an_inventory_of_ten_thousand_described_hosts_loads() -> None:
    text = "environments:\n" + "".join(
        f"  - {{name: gpu{index:05}, host: 10.{index >> 16}.{index >> 8 & 255}.{index & 255}, user: li, port: 22, "
        f"zone: beijing-{index % 4}, identity_file: ~/.ssh/id_ed25519, proxy_jump: bastion-{index % 8}, "
        f"resources: {'*all' if index else '&all {gpu: {type: H100, count: 8, memory: 80GB}, cpu: {cores: 128}}'}}}\n"
        for index in range(10_000)
    )
    assert len(parse_inventory(text, "x").environments) == 10_000


def test_a_bomb_of_aliases_is_no_inventory() -> None:
    bomb = ["a0: &a0 [1,1,1,1,1,1,1,1,1]", *(f"a{n}: &a{n} [{f'*a{n - 1},' * 9}]" for n in range(1, 9))]
    with pytest.raises(DocumentError, match="aliases stand for more than"):
        parse_inventory("\n".join(bomb), "x")
