"""The NVIDIA driver as the agent sees it: the real pynvml on a stub library, in a process of its own."""

from __future__ import annotations

import getpass
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dtagent.protocol import sentences
from dtagent.telemetry.nvml import GpuInventory, Nvml

from tests.agent.nvml_stub import CONTROL, child_environment, run_child

Stub = Callable[..., dict[str, str]]

WHOLE = {
    "utilization_percent": 0,
    "memory_used_mib": 1024,
    "memory_total_mib": 81920,
    "temperature_c": 40,
    "power_w": 65.0,
    "power_limit_w": 400.0,
    "sm_clock_mhz": 1410,
    "throttle_reasons": [],
    "ecc_uncorrected": 0,
    "processes": [],
    "memory_utilization_percent": 0,
    "memory_clock_mhz": 1593,
    "ecc_corrected": 0,
    "memory_repair_pending": False,
    "memory_repair_failed": False,
    "xid_count": 0,
    "pcie_receive_bytes_per_s": 0,
    "pcie_transmit_bytes_per_s": 0,
    "pcie_generation": 4,
    "pcie_lanes": 16,
    "mig_enabled": False,
}
"""What the stub says of a GPU that no setting changes."""


def errors(samples: list[dict[str, Any]]) -> list[str | None]:
    return [sample.get("error") for sample in samples]


def test_without_a_driver_there_are_no_gpus_and_a_note_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtagent.telemetry.nvml.LIBRARY", "libnvidia-ml-that-is-absent.so.1")
    nvml = Nvml()
    assert nvml.refresh() == 0
    assert nvml.facts() == GpuInventory(note=sentences.DRIVER_MISSING(library="libnvidia-ml.so.1"))


def test_without_a_driver_pynvml_is_not_even_imported() -> None:
    code = (
        "import sys, dtagent.telemetry.nvml as n; n.LIBRARY = 'libnvidia-ml-that-is-absent.so.1'; "
        "n.Nvml().refresh(); sys.exit('pynvml' in sys.modules)"
    )
    environment = child_environment(Path("/nonexistent"), Path("/nonexistent"))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)


def test_a_library_that_is_none_is_named_in_the_note(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text(
        "not a library at all, but longer than the header of one would be\n" * 4
    )
    seen = run_child(child_environment(tmp_path, tmp_path / "none"), "read")
    assert seen["samples"] == []
    assert "library cannot be loaded" in seen["facts"]["note"]


@pytest.mark.parametrize("count", [2, 8])
def test_every_metric_of_every_gpu_is_read(nvml_stub: Stub, count: int) -> None:
    settings = {
        "utilization.1": 97,
        "memory_used_mib.1": 70000,
        "temperature.1": 64,
        "power_mw.1": 402500,
        "sm_clock.1": 1980,
        "throttle.1": 0x45,
        "ecc.1": 3,
        "memory_utilization.1": 55,
        "memory_clock.1": 2619,
        "ecc_corrected.1": 12,
        "remap_pending.1": 1,
        "pcie_kib.1": 5,
        "pcie_lanes.1": 8,
        "nvlinks.1": 18,
        "nvlinks_active.1": 17,
        "recovery.1": 4,
        "processes.1": f"{os.getpid()}:2000,4194999:1500,{os.getpid()}",
    }
    seen = run_child(nvml_stub(gpus=count, settings=settings), "read")
    user = getpass.getuser() if os.getuid() else "root"
    busy = {
        **WHOLE,
        "index": 1,
        "utilization_percent": 97,
        "memory_used_mib": 70000,
        "memory_total_mib": 81920,
        "temperature_c": 64,
        "power_w": 402.5,
        "power_limit_w": 400.0,
        "sm_clock_mhz": 1980,
        "throttle_reasons": ["power cap", "hardware thermal slowdown"],
        "ecc_uncorrected": 3,
        "memory_utilization_percent": 55,
        "memory_clock_mhz": 2619,
        "ecc_corrected": 12,
        "memory_repair_pending": True,
        "pcie_receive_bytes_per_s": 5120,
        "pcie_transmit_bytes_per_s": 5120,
        "pcie_lanes": 8,
        "nvlinks": 18,
        "nvlinks_active": 17,
        "recovery_action": "drain and reset",
        "processes": [
            {"pid": os.getpid(), "user": user, "memory_used_mib": 2000},
            {"pid": 4194999, "memory_used_mib": 1500},
            {"pid": os.getpid(), "user": user},
        ],
    }
    assert seen["samples"] == [busy if index == 1 else {"index": index, **WHOLE} for index in range(count)]
    assert seen["facts"]["driver_version"] == "550.54.15"
    assert "note" not in seen["facts"]
    assert seen["facts"]["gpus"] == [
        {
            "index": index,
            "name": "NVIDIA A100-SXM4-80GB",
            "uuid": f"GPU-00000000-0000-0000-0000-{index:012}",
            "memory_total_mib": 81920,
            "pci_address": f"0000:{16 + index:02x}:00.0",
            "mig_enabled": False,
        }
        for index in range(count)
    ]


@pytest.mark.parametrize("code", [3, 4, 999], ids=["not supported", "no permission", "unknown"])
def test_a_metric_the_driver_refuses_is_none_and_the_others_are_right(nvml_stub: Stub, code: int) -> None:
    missing = {
        "MemoryInfo_v2": {"memory_used_mib", "memory_total_mib"},
        "UtilizationRates": {"utilization_percent", "memory_utilization_percent"},
        "TemperatureV": {"temperature_c"},
        "PowerUsage": {"power_w"},
        "EnforcedPowerLimit": {"power_limit_w"},
        "ClockInfo": {"sm_clock_mhz", "memory_clock_mhz"},
        "CurrentClocksEventReasons": {"throttle_reasons"},
        "TotalEccErrors": {"ecc_uncorrected", "ecc_corrected"},
        "RemappedRows": {"memory_repair_pending", "memory_repair_failed"},
        "PcieThroughput": {"pcie_receive_bytes_per_s", "pcie_transmit_bytes_per_s"},
        "CurrPcieLinkWidth": {"pcie_lanes"},
        "MigMode": {"mig_enabled"},
        "ComputeRunningProcesses_v3": {"processes"},
    }
    seen = run_child(nvml_stub(), "each_call_failing", str(code))
    assert seen == {
        function: {"index": 0, **{name: value for name, value in WHOLE.items() if name not in names}}
        for function, names in missing.items()
    }


def test_an_older_driver_is_asked_by_the_older_functions(nvml_stub: Stub) -> None:
    newer = ["MemoryInfo_v2", "TemperatureV", "CurrentClocksEventReasons", "ComputeRunningProcesses_v3"]
    settings: dict[str, object] = {f"fail.nvmlDeviceGet{name}": 13 for name in newer}
    seen = run_child(nvml_stub(settings={**settings, "throttle": 4, "processes": "4194999:10"}), "read")
    assert seen["samples"] == [
        {
            "index": 0,
            **WHOLE,
            # The older call counts the driver's own 512 MiB as used.
            "memory_used_mib": 1024 + 512,
            "throttle_reasons": ["power cap"],
            "processes": [{"pid": 4194999, "memory_used_mib": 10}],
        }
    ]


def test_names_may_come_as_bytes(nvml_stub: Stub) -> None:
    seen = run_child(nvml_stub(), "names_as_bytes")
    assert seen["facts"]["gpus"][0]["name"] == "NVIDIA A100-SXM4-80GB"
    assert seen["facts"]["driver_version"] == "550.54.15"


def test_a_gpu_lost_in_mid_run_leaves_the_other_as_it_was(nvml_stub: Stub) -> None:
    before, lost, back = run_child(nvml_stub(gpus=2), "changing", "60", "1:lost.1=1", "2:lost.1=")
    assert before["samples"] == back["samples"] == [{"index": 0, **WHOLE}, {"index": 1, **WHOLE}]
    assert lost["samples"] == [{"index": 0, **WHOLE}, {"index": 1, "error": "GPU is lost", "xid_count": 0}]
    assert [gpu["index"] for gpu in lost["facts"]["gpus"]] == [0]
    assert lost["facts"]["note"] == "GPU 1: GPU is lost"
    assert lost["numbers"] == [0, 1]  # Who waits for it by its number is not told that there is none.
    assert [gpu["index"] for gpu in back["facts"]["gpus"]] == [0, 1]


def test_a_gpu_lost_from_the_start_is_shown_and_looked_for_again_at_a_slow_pace(nvml_stub: Stub) -> None:
    environment = nvml_stub(gpus=2, settings={"lost.0": 1})
    first, early, due = run_child(environment, "changing", "60", "59:lost.0=", "60:")
    assert errors(first["samples"]) == ["GPU is lost", None]
    assert [gpu["index"] for gpu in first["facts"]["gpus"]] == [1]
    assert errors(early["samples"]) == ["GPU is lost", None]
    assert due["samples"] == [{"index": 0, **WHOLE}, {"index": 1, **WHOLE}]


def test_a_gpu_that_answers_nothing_is_an_error_rather_than_a_row_of_blanks(nvml_stub: Stub) -> None:
    names = ["MemoryInfo_v2", "MemoryInfo", "UtilizationRates", "TemperatureV", "Temperature", "PowerUsage"]
    names += ["EnforcedPowerLimit", "ClockInfo", "CurrentClocksEventReasons", "CurrentClocksThrottleReasons"]
    names += ["TotalEccErrors", "ComputeRunningProcesses_v3", "ComputeRunningProcesses_v2"]
    settings = {f"fail.nvmlDeviceGet{name}.1": 999 for name in names}
    seen = run_child(nvml_stub(gpus=2, settings=settings), "read")
    assert errors(seen["samples"]) == [None, "the driver answers no question about this GPU"]


@pytest.mark.parametrize(
    ("code", "note"),
    [
        (9, "the NVIDIA driver is installed but not loaded"),
        (18, "the NVIDIA driver was updated while it was loaded; the host needs a reboot"),
        (4, "this user may not use the NVIDIA driver; ask for access to /dev/nvidia*"),
        (999, "the NVIDIA driver fails: Unknown Error"),
        (77, "the NVIDIA driver fails: stub error 77"),
    ],
)
def test_a_driver_that_does_not_initialise_is_explained_and_tried_again(nvml_stub: Stub, code: int, note: str) -> None:
    environment = nvml_stub(gpus=2, settings={"fail.nvmlInitWithFlags": code})
    first, early, due = run_child(environment, "changing", "60", "59:fail.nvmlInitWithFlags=", "60:")
    assert first == early == {"samples": [], "numbers": [], "facts": {"gpus": [], "note": note}}
    assert len(due["samples"]) == len(due["facts"]["gpus"]) == 2
    assert "note" not in due["facts"]


def test_a_driver_unloaded_in_mid_run_shows_its_gpus_as_unreadable_until_it_is_back(nvml_stub: Stub) -> None:
    environment = nvml_stub(gpus=2)
    steps = ["1:fail.nvmlDeviceGetMemoryInfo_v2=9", "2:fail.nvmlInitWithFlags=9", "62:", "63:fail.nvmlInitWithFlags="]
    steps += ["64:fail.nvmlDeviceGetMemoryInfo_v2=", "122:"]
    seen = run_child(environment, "changing", "60", *steps)
    assert [errors(moment["samples"]) for moment in seen] == [
        [None, None],
        ["Driver Not Loaded"] * 2,
        ["Driver Not Loaded"] * 2,
        ["the NVIDIA driver is installed but not loaded"] * 2,
        ["the NVIDIA driver is installed but not loaded"] * 2,
        ["the NVIDIA driver is installed but not loaded"] * 2,
        [None, None],
    ]
    assert seen[3]["facts"]["gpus"] == []
    assert len(seen[-1]["facts"]["gpus"]) == 2


def test_a_driver_installed_after_the_start_is_found(nvml_library: Path, tmp_path: Path, nvml_stub: Stub) -> None:
    nvml_stub(gpus=4)
    empty = tmp_path / "libraries"
    empty.mkdir()
    environment = child_environment(empty, tmp_path / "nvml.conf")
    before, early, after = run_child(environment, "driver_installed_later", str(nvml_library))
    if before["gpus"]:
        pytest.skip("this machine has a driver of its own")
    assert before == early == {"gpus": [], "note": "no NVIDIA driver: libnvidia-ml.so.1 is not installed"}
    assert len(after["gpus"]) == 4


def test_a_driver_without_gpus_says_so(nvml_stub: Stub) -> None:
    seen = run_child(nvml_stub(gpus=0), "read")
    assert seen["samples"] == []
    assert seen["facts"] == {"gpus": [], "driver_version": "550.54.15", "note": "the NVIDIA driver sees no GPU"}


def test_facts_do_not_wait_for_a_sample_that_hangs_and_name_it(nvml_stub: Stub) -> None:
    seen = run_child(nvml_stub(gpus=2), "facts_during_a_hang")
    assert re.fullmatch(r"GPU 0: the driver has not answered for \d+ s: nvmlDeviceGetPowerUsage hangs", seen["note"])
    assert [gpu["index"] for gpu in seen["gpus"]] == [0, 1]


def test_a_function_that_a_gpu_lacks_is_not_asked_again_for_ten_minutes(nvml_stub: Stub) -> None:
    environment = nvml_stub(settings={"fail.nvmlDeviceGetPowerUsage": 3})
    seen = run_child(environment, "changing", "60", "1:fail.nvmlDeviceGetPowerUsage=", "599:", "600:")
    assert [moment["samples"][0].get("power_w") for moment in seen] == [None, None, None, 65.0]


def test_what_seldom_changes_is_read_every_ten_seconds_and_the_rest_each_time(nvml_stub: Stub) -> None:
    steps = ["1:ecc=5", "2:temperature=80", "9.9:", "10:"]
    seen = run_child(nvml_stub(), "changing", "60", *steps)
    assert [moment["samples"][0]["ecc_uncorrected"] for moment in seen] == [0, 0, 0, 0, 5]
    assert [moment["samples"][0]["temperature_c"] for moment in seen] == [40, 40, 80, 80, 80]


def test_throughput_is_the_growth_of_the_counters_where_there_are_such(nvml_stub: Stub) -> None:
    settings = {"nvlink_sent_kib": 1000, "nvlink_received_kib": 10, "pcie_sent_bytes": 5000, "pcie_received_bytes": 7}
    steps = ["1:nvlink_sent_kib=3000", "2:pcie_sent_bytes=6000", "4:pcie_sent_bytes=8000", "5:pcie_sent_bytes=1"]
    seen = run_child(nvml_stub(settings=settings), "changing", "60", *steps)
    assert [moment["samples"][0].get("nvlink_transmit_bytes_per_s") for moment in seen] == [None, 2048000, 0, 0, 0]
    # The last one was set back, so that interval says nothing.
    assert [moment["samples"][0].get("pcie_transmit_bytes_per_s") for moment in seen] == [None, 0, 1000, 1000, None]


def test_an_xid_is_counted_and_named(nvml_stub: Stub) -> None:
    seen = run_child(nvml_stub(gpus=2), "changing", "60", "1:xid.1=79", "2:", "3:xid.1=48")
    told = [[(gpu["xid_count"], gpu.get("xid_last")) for gpu in moment["samples"]] for moment in seen]
    assert told == [[(0, None), (0, None)], [(0, None), (1, 79)], [(0, None), (1, 79)], [(0, None), (2, 48)]]


def test_where_the_driver_gives_no_events_the_kernel_log_is_read(nvml_stub: Stub, tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_bytes(
        b"4,1,2,-;NVRM: Xid (PCI:0000:11:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
        b"4,1,2,-;NVRM: Xid (PCI:0000:ff:00): 31, another GPU\n"
    )
    environment = nvml_stub(gpus=2, settings={"fail.nvmlDeviceRegisterEvents": 3})
    seen = run_child(environment, "reading_kernel_log", str(log))
    assert [(gpu["xid_count"], gpu.get("xid_last")) for gpu in seen] == [(0, None), (1, 79)]
    unreadable = run_child(environment, "reading_kernel_log", str(tmp_path / "none"))
    assert ["xid_count" in gpu for gpu in unreadable] == [False, False]


def test_mig_instances_are_listed_with_their_memory(nvml_stub: Stub) -> None:
    seen = run_child(nvml_stub(gpus=2, settings={"mig.1": 2, "fail.nvmlDeviceGetUtilizationRates.1": 3}), "read")
    whole, parted = seen["samples"]
    assert (whole["mig_enabled"], "mig_instances" in whole) == (False, False)
    assert parted["mig_enabled"] is True
    assert "utilization_percent" not in parted
    assert [instance["uuid"] for instance in parted["mig_instances"]] == [
        f"MIG-{index:08}-0000-0000-0000-000000000001" for index in range(2)
    ]
    assert parted["mig_instances"][0]["memory_total_mib"] == 81920


@pytest.mark.parametrize(
    ("name", "shown"), [("", "NVIDIA GPU"), ("\udcff\udcfe", "NVIDIA GPU"), ("\x1b[2Jx", "\x1b[2Jx")]
)
def test_a_name_that_is_none_does_no_harm(nvml_stub: Stub, name: str, shown: str) -> None:
    seen = run_child(nvml_stub(settings={"name": name}), "read")
    assert seen["facts"]["gpus"][0]["name"] == shown


def test_the_driver_is_initialised_once_whatever_happens_to_one_gpu(nvml_stub: Stub) -> None:
    environment = nvml_stub(gpus=2)
    steps = [f"{second}:lost.1={second % 2 or ''}" for second in range(60, 600, 60)]
    run_child(environment, "changing", "60", *steps)
    assert Path(environment[CONTROL] + ".inits").read_text() == "."
