"""The start of a gang."""

from __future__ import annotations

from tests.faults.fault import Fault

_HOSTS = "tests/faults/test_bad_hosts.py::"
_PORT = "tests/faults/test_master_port.py::"
_HALF = "tests/faults/test_half_gangs.py::"
_DEATHS = "tests/faults/test_deaths.py::"

ROWS = (
    Fault(
        "one of N fails in prepare",
        "a workdir that one host lacks",
        ("P2",),
        60,
        (f"{_HOSTS}test_a_failure_to_prepare_one_host_starts_nothing_on_the_others",),
    ),
    Fault(
        "one of N hangs in prepare",
        "SIGSTOP to an agent before `prepare`; one that fails beside it; SIGSTOP between `prepare` and `start`",
        ("P2", "P7"),
        30,
        (
            f"{_HALF}test_a_node_that_hangs_in_prepare_is_lost_and_the_others_are_clean",
            f"{_HALF}test_a_node_that_fails_in_prepare_does_not_wait_for_one_that_hangs",
            f"{_HALF}test_a_node_that_is_gone_between_prepare_and_start_takes_the_started_ones_back",
        ),
    ),
    Fault(
        "hosts down before the start",
        "one host killed and the cable of another pulled",
        ("P2", "P6", "P7"),
        60,
        (f"{_HOSTS}test_hosts_that_are_down_are_named_within_the_deadline_and_nothing_is_started",),
    ),
    Fault(
        "late start after an abort",
        "`start` after the attempt was discarded, and after a stop that came in the middle of `prepare`",
        ("P2",),
        30,
        (
            f"{_DEATHS}test_a_discarded_attempt_cannot_be_started_late",
            f"{_DEATHS}test_a_stop_during_prepare_keeps_a_late_start_out",
        ),
    ),
    Fault(
        "a start without an answer",
        "an answer to `start` that is swallowed between the agent and the launch, after it was heard or before",
        ("P2", "P4"),
        30,
        (f"{_HALF}test_a_start_without_an_answer_is_asked_about_and_happens_once",),
    ),
    Fault(
        "master port taken, firewalled or on loopback",
        "iptables on the master, listeners on all of its ports, and host names that resolve to 127.0.1.1",
        ("P2", "P7"),
        30,
        (
            f"{_PORT}test_a_firewall_that_refuses_is_named_with_the_port",
            f"{_PORT}test_a_firewall_that_drops_is_named_within_its_deadline_and_the_others_go_on",
            f"{_PORT}test_ports_that_are_taken_are_passed_over_until_none_is_left",
            f"{_PORT}test_a_name_that_resolves_to_loopback_is_named_on_the_master_and_on_workers",
        ),
    ),
    Fault(
        "version drift",
        "three real virtual environments, of which one has another torch by its packages' metadata alone; in "
        "answers made up by the test, interpreters and drivers that differ",
        ("P2",),
        30,
        (
            "tests/faults/test_version_drift.py::test_the_drift_table_names_the_host_whose_torch_differs",
            "tests/unit/preflight/test_preflight.py::test_versions_that_differ_are_a_table_of_most_and_others",
        ),
    ),
    Fault(
        "the agent's usual place is another user's, and hosts share a home",
        "two hosts of one image with one file system for what programs keep in the home, and a directory of another "
        "user's in /var/tmp; a job is run, another stopped, and one host's agent removed",
        ("P2",),
        60,
        ("tests/faults/test_shared_home.py::test_each_host_has_an_agent_of_its_own_and_jobs_run_and_stop",),
    ),
)
