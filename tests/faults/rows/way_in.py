"""The way in to a host: its login, its files, its port."""

from __future__ import annotations

from tests.faults.fault import Fault

_BAD_LINK_JOBS = "tests/faults/test_jobs_on_bad_links.py::"
_TRANSPORT = "tests/integration/test_ssh_transport.py::"
_PACKETS = "tests/integration/test_ssh_packet_limit.py::"
_HOSTS = "tests/faults/test_bad_hosts.py::"
_SHELLS = "tests/faults/test_login_shells.py::"

ROWS = (
    Fault(
        "host key changed",
        "the sshd of a host given a new key; another key in known_hosts than a real sshd shows; one of another type",
        ("P2", "P8"),
        60,
        (
            f"{_HOSTS}test_hosts_whose_key_changed_or_was_revoked_are_refused_by_name_and_nothing_is_started",
            f"{_TRANSPORT}test_a_changed_key_is_refused_without_a_question_and_both_fingerprints_are_named",
            f"{_TRANSPORT}test_a_key_of_another_type_than_the_known_one_counts_as_changed",
        ),
    ),
    Fault(
        "`@cert-authority` and `@revoked` in known_hosts",
        "such lines, and broken ones, beside the right ones, for a launch on three hosts and for one connection",
        ("P2", "P7", "P8"),
        60,
        (
            f"{_HOSTS}test_hosts_whose_key_changed_or_was_revoked_are_refused_by_name_and_nothing_is_started",
            f"{_TRANSPORT}test_a_revoked_key_is_refused",
            f"{_TRANSPORT}test_bad_lines_of_a_known_hosts_file_are_told_and_do_not_matter",
            "tests/unit/transport/ssh/test_known_hosts.py::test_revoked_keys_are_marked_and_certificate_authorities_left_out",
        ),
    ),
    Fault(
        "SSH packets and greetings without an end",
        "peers that announce packets of up to 4 GiB and send them, for `envs` beside a good host; for one connection "
        "directly, through a ProxyCommand and behind a jump host, before the login and after it",
        ("P7",),
        30,
        (
            "tests/faults/test_flooding_servers.py::"
            "test_servers_that_flood_are_named_and_cost_neither_memory_nor_the_good_host",
            f"{_PACKETS}test_a_peer_that_announces_a_long_packet_before_the_login_is_cut_off_and_the_limit_named",
            f"{_PACKETS}test_a_greeting_without_an_end_is_cut_off_and_the_limit_named",
            f"{_PACKETS}test_a_server_that_sends_a_long_packet_after_the_login_is_cut_off_and_the_limit_named",
        ),
    ),
    Fault(
        "noisy, slow or dying login shell",
        "a .bashrc that prints escape sequences and 5,000 lines, one that sleeps, one that exits, on three hosts",
        ("P7", "P8"),
        30,
        (
            f"{_SHELLS}test_start_up_files_that_print_sleep_or_exit_cost_their_own_host_at_most",
            "tests/unit/rpc/test_agent_client.py::test_a_shell_that_prints_without_end_is_cut_off",
        ),
    ),
    Fault(
        "odd login shell",
        "csh, fish and nologin as the login shells of three hosts; each shell that is installed runs both commands",
        ("P7",),
        30,
        (
            f"{_SHELLS}test_shells_that_are_no_sh_work_and_one_that_is_none_is_quoted",
            "tests/integration/test_local_transport.py::test_the_bootstrap_command_works_under",
        ),
    ),
    Fault(
        "MaxSessions 1",
        "sshd_config of a host, which then runs a job with its files",
        ("P2",),
        60,
        (
            f"{_BAD_LINK_JOBS}test_a_host_that_takes_one_session_a_connection_runs_a_job_with_its_files",
            f"{_TRANSPORT}test_a_session_limit_of_the_server_is_named",
        ),
    ),
)
