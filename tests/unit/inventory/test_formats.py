"""Inventories of other programs: hostfiles, Ansible as INI and YAML, an allocation of Slurm; told by content."""

from __future__ import annotations

import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from dttui.cli.sources import read_inventory
from dttui.errors import UsageError
from dttui.inventory import Environment, Inventory, Reach, add_environments, load_inventory, parse_inventory
from dttui.inventory.ranges import MAX_HOSTS, RangeError, expand_ansible, expand_slurm
from dttui.inventory.slurm import slurm_inventory
from dttui.spec.problems import DocumentError, format_path

INI = """\
# hosts of their own
bastion ansible_host=10.0.0.1

[gpus]
gpu[01:02] ansible_user=li   # two
gpu9:2222 ansible_ssh_private_key_file=~/.ssh/key

[west]
gpu01 ansible_host="10.0.0.11"
here ansible_connection=local

[cluster:children]
gpus
west

[cluster:vars]
ansible_port = 2200
ansible_user=root

[all:vars]
ansible_ssh_common_args='-o ProxyJump=jump@bastion -o ForwardAgent=no'
"""
YAML = """\
all:
  hosts:
    login: {ansible_connection: local}
  children:
    gpus:
      hosts:
        gpu[1:2]:
          ansible_user: 1000
        gpu7: {ansible_host: 10.0.0.7, ansible_port: "2222"}
      vars: {ansible_user: li, ansible_ssh_private_key_file: /k, unrelated: [1, 2]}
"""


def fields(inventory: Inventory) -> dict[str, dict[str, Any]]:
    return {
        item.name: item.model_dump(mode="json", exclude_unset=True, exclude={"name"}) for item in inventory.environments
    }


def parsed(text: str) -> dict[str, dict[str, Any]]:
    return fields(parse_inventory(text, "hosts"))


def told(text: str) -> list[tuple[int | None, int | None, str, str]]:
    with pytest.raises(DocumentError) as caught:
        parse_inventory(text, "hosts")
    return [(item.line, item.column, format_path(item.path), item.message) for item in caught.value.problems]


def outcome(text: str) -> object:
    try:
        return parse_inventory(text, "x")
    except DocumentError as error:
        return error.problems


def test_a_hostfile_is_an_inventory() -> None:
    text = "# two\ngpu1 slots=8\n\ngpu2.example.org slots=4 max_slots=4 # less\n10.0.0.3\n"
    assert parsed(text) == {
        "gpu1": {"host": "gpu1", "resources": {"gpu": {"count": 8}}},
        "gpu2.example.org": {"host": "gpu2.example.org", "resources": {"gpu": {"count": 4}}},
        "10.0.0.3": {"host": "10.0.0.3", "resources": {}},
    }


def test_mistakes_in_a_hostfile_have_their_places() -> None:
    assert told("gpu1 slot=4\n  gpu2 slots=x\ngpu1 slots=2000 8\n-x\n") == [
        (1, 6, "", 'expected slots=N, found "slot=4"'),
        (2, 8, "", 'expected a number of slots of at most 1024, found "x"'),
        (3, 6, "", 'expected a number of slots of at most 1024, found "2000"'),
        (3, 17, "", 'expected slots=N, found "8"'),
        (3, 1, "", "gpu1 is here twice; the first is in line 1"),
        (4, 1, "", 'expected a host name, found "-x"'),
    ]


def test_an_ini_inventory_of_ansible() -> None:
    jump = {"proxy_jump": "jump@bastion"}
    assert parsed(INI) == {
        "bastion": {"host": "10.0.0.1", **jump},
        "gpu01": {"host": "10.0.0.11", "user": "li", "port": 2200, **jump},
        "gpu02": {"host": "gpu02", "user": "li", "port": 2200, **jump},
        "gpu9": {"host": "gpu9", "user": "root", "port": 2222, "identity_file": "~/.ssh/key", **jump},
        "here": {"host": "here", "user": "root", "port": 2200, "local": True, **jump},
    }


def test_a_yaml_inventory_of_ansible() -> None:
    assert parsed(YAML) == {
        "login": {"host": "login", "local": True},
        "gpu1": {"host": "gpu1", "user": "1000", "identity_file": "/k"},
        "gpu2": {"host": "gpu2", "user": "1000", "identity_file": "/k"},
        "gpu7": {"host": "10.0.0.7", "user": "li", "port": 2222, "identity_file": "/k"},
    }


def test_what_is_said_of_an_inner_group_wins() -> None:
    text = "[b]\nx\n[a:children]\nb\n[a:vars]\nansible_user=outer\n[b:vars]\nansible_user=inner\n"
    assert parsed(text)["x"]["user"] == "inner"


@pytest.mark.parametrize(
    "text", ["web[1:3]\n", "gpu1 ansible_user=li\n", "; x\n\n[a]\n", "plain\n[a]\nplain\n", "[a:vars]\nx=1\n"]
)
def test_such_text_is_ini(text: str) -> None:
    assert isinstance(outcome(text), Inventory)


def test_a_connection_that_is_not_said_is_the_usual_one() -> None:
    found = outcome("g:\n  hosts:\n    a: {ansible_connection: }\n    b: {ansible_connection: smart}\n")
    assert isinstance(found, Inventory)
    assert [item.reach for item in found.environments] == [Reach.SSH, Reach.SSH]
    assert told("g: {hosts: {a: {ansible_connection: 7}}}\n")[0][3] == 'a is reached by neither SSH nor here: "7"'


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("[a]\nx ansible_port=abc\n", [(2, 3, "x.ansible_port", 'expected a whole number, found "abc"')]),
        ("[a]\nx ansible_host={{ip}}\n", [(2, 3, "x.ansible_host", 'ansible_host is a template: "{{ip}}"')]),
        (
            "[a]\nx ansible_connection=kubectl\n",
            [(2, 3, "x.ansible_connection", 'x is reached by neither SSH nor here: "kubectl"')],
        ),
        ("[a]\nx ansible_host=-oEvil\n", [(2, 3, "x.ansible_host", None)]),
        ("[a]\nx y\n", [(2, 3, "", 'expected NAME=VALUE, found "y"')]),
        ("[a]\nx a='b\n", [(2, 1, "", "a quote is not closed")]),
        ("[a:vars]\nx\n", [(2, 1, "", 'expected NAME=VALUE, found "x"')]),
        ("[a:childs]\nb\n", [(1, 1, "", 'expected [GROUP], [GROUP:children] or [GROUP:vars], found "[a:childs]"')]),
        ("[a:children]\nb\n", [(2, 1, "", "there is no group b")]),
        ("[a:children]\nb\n[b:children]\na\n", [(1, 1, "", "group a is within itself")]),
        ("[a]\nx[1:\n", [(2, 2, "", "a bracket is not closed")]),
        ("[a]\nx[3:1]\n", [(2, 3, "", "this range ends before it begins")]),
        ("[a]\nx[0:99999]\n", [(2, 3, "", "this stands for more than 65536 hosts")]),
    ],
)
def test_mistakes_in_an_ini_inventory_have_their_places(
    text: str, problems: list[tuple[int, int, str, str | None]]
) -> None:
    found = told(text)
    assert [item[:3] for item in found] == [item[:3] for item in problems]
    assert all(item[3] is None or item[3] == message for (*_place, message), item in zip(found, problems, strict=True))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("all:\n  host: {a: }\n", (2, 3, "all.host", "unknown key")),
        ("all:\n  hosts: [a]\n", (2, 10, "all.hosts", "expected a mapping of keys to values, found a list")),
        ("all:\n  hosts:\n    a: 7\n", (3, 8, "all.hosts.a", "expected a mapping of keys to values, found 7")),
        (
            "g:\n  hosts:\n    a: {ansible_port: 70000}\n",
            (3, 23, "a.ansible_port", "expected a number of at most 65535, found 70000"),
        ),
        (
            "plugin: aws_ec2\n",
            (1, 1, "plugin", "this makes an inventory by a plugin of Ansible, which dttui does not run"),
        ),
        ("g: {hosts: {'a[1': }}\n", (1, 14, "g.hosts.a[1", "a bracket is not closed")),
    ],
)
def test_mistakes_in_a_yaml_inventory_have_their_places(text: str, problem: tuple[int, int, str, str]) -> None:
    assert told(text) == [problem]


def test_an_inventory_of_our_own_is_read_as_before() -> None:
    assert told("environments: [{name: a}]\nall: {hosts: {}}\n")[0][3].startswith("how it is reached is missing")
    assert told("enviroments: [{name: a, host: h}]")[0][2:] == ("enviroments", "unknown key")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[1-3,7],login", ["gpu1", "gpu2", "gpu3", "gpu7", "login"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[1-2]x", ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]),
        ("a", ["a"]),
        ("a,a", ["a"]),
    ],
)
def test_node_lists_of_slurm_are_expanded(text: str, names: list[str]) -> None:
    assert expand_slurm(text) == names


@pytest.mark.parametrize(
    ("text", "column"),
    [("", 0), ("a,,b", 2), ("a[1-", 1), ("a]", 1), ("a[x]", 2), ("a[1,x]", 4), ("a[3-1]", 2), ("b,a[1-999999]", 4)],
)
def test_node_lists_that_cannot_be_expanded_say_where(text: str, column: int) -> None:
    with pytest.raises(RangeError) as caught:
        expand_slurm(text)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[01:03]", ["gpu01", "gpu02", "gpu03"]),
        ("n[8:10]", ["n8", "n9", "n10"]),
        ("db-[a:c].x", ["db-a.x", "db-b.x", "db-c.x"]),
        ("n[1:9:4]", ["n1", "n5", "n9"]),
    ],
)
def test_ranges_of_ansible_are_expanded(text: str, names: list[str]) -> None:
    assert expand_ansible(text) == names


def test_no_expression_stands_for_more_hosts_than_the_limit() -> None:
    with pytest.raises(RangeError):
        expand_slurm("a[1-300]b[1-300]")
    with pytest.raises(RangeError):
        expand_slurm(",".join(f"h{index}-[1-1000]" for index in range(MAX_HOSTS // 1000 + 1)))


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, [None, None]),
        ({"SLURM_GPUS_ON_NODE": "4"}, [4, 4]),
        ({"SLURM_GPUS_PER_NODE": "a100:2", "SLURM_GPUS_ON_NODE": "4"}, [2, 2]),
        ({"SLURM_JOB_GPUS": "0,1,5"}, [3, 3]),
        ({"SLURM_GPUS_PER_TASK": "2", "SLURM_TASKS_PER_NODE": "4,1"}, [8, 2]),
        ({"SLURM_TASKS_PER_NODE": "4(x2)"}, [None, None]),
    ],
)
def test_the_gpus_of_an_allocation(variables: dict[str, str], gpus: list[int | None]) -> None:
    inventory = slurm_inventory({"SLURM_JOB_NODELIST": "n[1-2]", **variables})
    assert [item.resources.gpu.count if item.resources.gpu else None for item in inventory.environments] == gpus
    if "a100:2" in variables.values():
        assert inventory.environments[0].resources.gpu is not None
        assert inventory.environments[0].resources.gpu.type == "a100"


def test_the_cpus_of_an_allocation() -> None:
    variables = {"SLURM_NODELIST": "n[1-3]", "SLURM_JOB_CPUS_PER_NODE": "16(x2),8"}
    inventory = slurm_inventory(variables)
    assert [item.resources.cpu.cores if item.resources.cpu else None for item in inventory.environments] == [16, 16, 8]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "slurm: this is no Slurm allocation: SLURM_JOB_NODELIST is not set"),
        ({"SLURM_JOB_NODELIST": "a[1-"}, "$SLURM_JOB_NODELIST:1:2: a bracket is not closed"),
        ({"SLURM_JOB_NODELIST": "-a"}, '$SLURM_JOB_NODELIST:1:1: expected a host name, found "-a"'),
        ({"SLURM_JOB_NODELIST": "a", "SLURM_GPUS_ON_NODE": "x"}, "$SLURM_GPUS_ON_NODE:1:1: expected a number of GPUs"),
        ({"SLURM_JOB_NODELIST": "a", "SLURM_JOB_CPUS_PER_NODE": "1(x9999999)"}, "expected counts such as"),
        ({"SLURM_JOB_NODELIST": "a", "SLURM_JOB_CPUS_PER_NODE": "1(x2)"}, "2 counts for 1 nodes"),
    ],
)
def test_what_is_wrong_with_an_allocation_is_told(variables: dict[str, str], words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        slurm_inventory(variables)
    assert words in str(caught.value)


def test_each_kind_is_named_by_inventory_or_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "anything"
    path.write_text("gpu1 slots=2\n")
    named = Namespace(demo=False, inventory=str(path))
    assert [item.name for item in read_inventory(named).environments] == ["gpu1"]
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    named = Namespace(demo=False, inventory="slurm:")
    assert [item.name for item in read_inventory(named).environments] == ["n1", "n2"]
    monkeypatch.setenv("DTTUI_INVENTORY", "slurm:")
    unnamed = Namespace(demo=False, inventory=None)
    assert [item.name for item in read_inventory(unnamed).environments] == ["n1", "n2"]


@pytest.mark.parametrize("text", [INI, YAML, "gpu1 slots=8\n"])
def test_hosts_are_not_added_to_an_inventory_of_another_program(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with pytest.raises(UsageError, match="cannot be added to"):
        add_environments(path, [Environment(name="new", host="new")])
    assert path.read_text() == text
    with pytest.raises(UsageError, match="cannot be added to"):
        add_environments(Path("slurm:"), [Environment(name="new", host="new")])
    assert load_inventory(path).environments


def test_groups_within_groups_are_bounded() -> None:
    chain = "".join(f"[g{index}:children]\ng{index + 1}\n" for index in range(5000)) + "[g5000]\nx\n"
    assert list(parsed(chain)) == ["x"]
    wide = "".join(f"[p{index}:children]\nmid\n" for index in range(2000)) + "[mid:children]\n"
    wide += "".join(f"c{index}\n" for index in range(2000)) + "".join(
        f"[c{index}]\nh{index}\n" for index in range(2000)
    )
    assert told(wide)[0][3] == "there are too many groups within groups"


def test_whatever_text_gives_an_inventory_or_problems() -> None:
    generator = random.Random(3)
    words = ["[", "]", ":", "=", "slots", "{", "}", "\n", " ", "'", '"', "-", "0", "\x00", "ansible_port=", "é", "#"]
    for _round in range(800):
        text = generator.choice((INI, YAML, "gpu1 slots=8\ngpu2 slots=8\n"))
        for _change in range(generator.randint(1, 4)):
            start = generator.randrange(len(text) + 1)
            end = min(len(text), start + generator.choice((0, 1, 3, 20)))
            text = text[:start] + generator.choice((*words, "")) + text[end:]
        assert outcome(text)


SITE = """\
# production
[gpus]
gpu-[001:002].dc1.example.org gpus=8
gpu-a\tansible_host=2001:db8::5 ansible_python_interpreter=auto_silent

[gpus:vars]
ansible_user=train
ansible_port=2222
ansible_python_interpreter=/opt/conda/bin/python
some_list=[1, 2]

[cpus]
node02 ansible_ssh_common_args='-J bastion.example.org:2200 -o StrictHostKeyChecking=no'
"""


def write(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory / "hosts"


def test_variables_in_files_beside_an_inventory_of_ansible_count(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "hosts": SITE,
            "group_vars/all.yml": "ansible_user: everyone\nansible_ssh_private_key_file: /k\nsecret: !vault |\n  33\n",
            "group_vars/gpus/10-net.yaml": "ansible_port: 2223\n",
            "group_vars/gpus/20-more.yml": "x: {y: 1}\n",
            "host_vars/gpu-a": "ansible_user: 1000\nansible_host: 10.0.0.9\n",
            "host_vars/node02.yml": "$ANSIBLE_VAULT;1.1;AES256\n6162\n",
            "host_vars/other.yml": "[",
        },
    )
    common = {"user": "train", "port": 2223, "identity_file": "/k", "python": "/opt/conda/bin/python"}
    eight = {"gpu": {"count": 8}}
    assert fields(load_inventory(path)) == {
        "gpu-001.dc1.example.org": {"host": "gpu-001.dc1.example.org", **common, "resources": eight},
        "gpu-002.dc1.example.org": {"host": "gpu-002.dc1.example.org", **common, "resources": eight},
        "gpu-a": {"host": "10.0.0.9", "user": "1000", "port": 2223, "identity_file": "/k"},
        "node02": {
            "host": "node02",
            "user": "everyone",
            "identity_file": "/k",
            "proxy_jump": "bastion.example.org:2200",
        },
    }
    assert parsed(SITE)["gpu-a"] == {"host": "2001:db8::5", "user": "train", "port": 2222}


def test_mistakes_in_files_beside_an_inventory_name_them(tmp_path: Path) -> None:
    path = write(tmp_path, {"hosts": "[a]\n  x\n", "host_vars/x.yml": "ansible_port: many\n"})
    with pytest.raises(DocumentError) as caught:
        load_inventory(path)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (2, 3)
    assert problem.path == (str(tmp_path / "host_vars" / "x.yml"), "ansible_port")
    (tmp_path / "host_vars" / "x.yml").write_text("a: [\n")
    with pytest.raises(DocumentError, match=r"x\.yml:2:1: not valid YAML"):
        load_inventory(path)


def test_what_ansible_itself_writes_as_json_is_read() -> None:
    text = """{
    "_meta": {"hostvars": {"g1": {"ansible_host": "10.0.0.1", "ansible_port": 2222}, "g2": {}}},
    "all": {"children": ["ungrouped", "gpus"]},
    "gpus": {"hosts": ["g1", "g2"], "vars": {"ansible_user": "li"}},
    "ungrouped": {"hosts": []}
}
"""
    assert parsed(text) == {
        "g1": {"host": "10.0.0.1", "port": 2222, "user": "li"},
        "g2": {"host": "g2", "user": "li"},
    }


def test_slots_behind_a_colon_are_slots() -> None:
    assert parsed("gpu1 slots=4\r\ngpu2:8\r\n10.0.0.3:2 # two\r\n") == {
        "gpu1": {"host": "gpu1", "resources": {"gpu": {"count": 4}}},
        "gpu2": {"host": "gpu2", "resources": {"gpu": {"count": 8}}},
        "10.0.0.3": {"host": "10.0.0.3", "resources": {"gpu": {"count": 2}}},
    }


def test_a_node_list_in_an_unknown_form_is_given_to_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocation = {"SLURM_JOB_NODELIST": "gpu[[1-2]-a]", "SLURM_GPUS_ON_NODE": "2"}
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DocumentError, match="expected a range"):
        slurm_inventory(allocation)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\n[ "$*" = "show hostnames gpu[[1-2]-a]" ] || exit 1\necho gpu1-a\necho gpu2-a\n')
    scontrol.chmod(0o755)
    assert [item.name for item in slurm_inventory(allocation).environments] == ["gpu1-a", "gpu2-a"]
    with pytest.raises(DocumentError, match="a bracket is not closed"):
        slurm_inventory({"SLURM_JOB_NODELIST": "a["})


def test_ansible_variables_for_gpus_declare_them() -> None:
    text = "[w]\na gpu_count=4 gpu_type=A100\nb\nc gpus=0,1\n[w:vars]\ngpus=2\n"
    found = parsed(text)
    assert found["a"]["resources"] == {"gpu": {"count": 4, "type": "A100"}}
    assert found["b"]["resources"] == {"gpu": {"count": 2}}
    assert "resources" not in found["c"]


@pytest.mark.parametrize(
    ("written", "meant"), [("ansible_prot", "ansible_port"), ("ansible_usr", "ansible_user"), ("ansible_ssh_pass", "")]
)
def test_a_misspelt_ansible_variable_is_named_with_its_place(written: str, meant: str) -> None:
    text = f"[w]\na {written}=22\n"
    if not meant:
        assert parsed(text) == {"a": {"host": "a"}}
        return
    with pytest.raises(DocumentError) as caught:
        parsed(text)
    (problem,) = caught.value.problems
    assert (problem.line, problem.hint) == (2, f'did you mean "{meant}"?')


@pytest.mark.parametrize("text", ["Host a\n  HostName b\n", "# mine\n\nInclude conf.d/*\n", "match host a\n"])
def test_an_ssh_configuration_is_no_inventory_and_says_how_to_make_one(text: str) -> None:
    with pytest.raises(DocumentError, match=r"this is an ssh configuration, no inventory\. .*dttui envs import"):
        parsed(text)


def test_a_host_that_is_called_host_is_still_one() -> None:
    assert parsed("host slots=4\n") == {"host": {"host": "host", "resources": {"gpu": {"count": 4}}}}
    assert parsed("[w]\nhost ansible_user=li\n") == {"host": {"host": "host", "user": "li"}}
