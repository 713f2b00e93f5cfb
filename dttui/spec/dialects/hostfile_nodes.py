"""A hostfile as the nodes of a job."""

from __future__ import annotations

from dttui.spec.dialects.hostfile import Host, parse_hostfile
from dttui.spec.dialects.translation import Translated, Translation, table_source
from dttui.spec.yaml_source import YamlSource


def hostfile_source(hosts: tuple[Host, ...], text: str, name: str) -> YamlSource:
    """Return a hostfile as a document: of host to its slots."""
    entries = [
        (host.name, host.mark, {"slots": host.slots} if host.slots is not None else {}, host.slots_mark)
        for host in hosts
    ]
    return table_source(name, tuple(text.splitlines()), entries)


def translate_hostfile(text: str, name: str) -> Translated:
    """Carry a hostfile over: its hosts are the nodes of the job. Raises DocumentError with every problem of it."""
    hosts = parse_hostfile(text, name)
    translation = Translation(hostfile_source(hosts, text, name))
    for index, host in enumerate(hosts):
        translation.put(("cluster", "nodes", index, "id"), host.name, (host.name,))
        target = ("cluster", "nodes", index, "resources", "gpu", "count")
        translation.carry((host.name, "slots"), target)
    return translation.finish()
