"""The link between the login node and a host: what may happen to it."""

from __future__ import annotations

from tests.faults.fault import Fault

_BAD_LINKS = "tests/faults/test_bad_links.py::"
_BAD_LINK_JOBS = "tests/faults/test_jobs_on_bad_links.py::"
_SILENT = "tests/faults/test_silent_servers.py::"
_ROUTES = "tests/integration/test_ssh_routes.py::"
_DEAD = "tests/faults/test_dead_hosts.py::"
_EXEC = "tests/faults/test_exec_hosts.py::"
_COMMAND = "tests/integration/test_exec_transport.py::"

ROWS = (
    Fault(
        "silent sshd",
        "a listener that takes the connection and never says a word, or stops after its first line",
        ("P6", "P7"),
        3,
        (
            f"{_SILENT}test_a_host_that_takes_the_connection_and_says_nothing",
            f"{_SILENT}test_a_host_that_stops_answering_in_the_middle_of_the_key_exchange",
            f"{_SILENT}test_no_connect_that_fails_leaves_a_thread",
        ),
    ),
    Fault(
        "banner dripped",
        "a proxy before a real sshd that passes one byte every 0.3 s; then twenty of them at once beside a good host",
        ("P6", "P7"),
        7,
        (
            f"{_BAD_LINKS}test_a_banner_that_drips_is_given_up_at_the_deadline",
            f"{_BAD_LINKS}test_many_who_drip_delay_nobody_else",
        ),
    ),
    Fault(
        "sshd stopped after the channel opened",
        "SIGSTOP to the sshd of a session, and to all of a host during a job until that is told; then SIGCONT",
        ("P1", "P5", "P6"),
        30,
        (
            f"{_SILENT}test_a_host_that_freezes_does_not_hold_a_command_for_ever",
            f"{_BAD_LINK_JOBS}test_an_sshd_that_freezes_is_unknown_within_30_s_and_taken_up_again",
        ),
    ),
    Fault(
        "sshd stopped under a job that is being stopped",
        "SIGSTOP to all sshd of one host, then `dttui stop` and `--force` of a job that ignores SIGTERM; SIGCONT",
        ("P3", "P7"),
        20,
        (f"{_BAD_LINK_JOBS}test_a_host_whose_sshd_freezes_keeps_no_stop_from_the_others",),
        left="the processes on the frozen host, named as lost, until `dttui stop` is said again",
    ),
    Fault(
        "sshd stopped before the login",
        "SIGSTOP to the listening sshd",
        ("P6", "P7"),
        5,
        (f"{_SILENT}test_a_server_that_freezes_before_the_login",),
    ),
    Fault(
        "link cut both ways and healed",
        "a host's cable pulled out of the switch while a job runs, and put back; a proxy that holds everything back",
        ("P1", "P5", "P6"),
        30,
        (
            f"{_BAD_LINK_JOBS}test_a_job_goes_on_through_a_link_that_was_cut_for_a_while",
            f"{_BAD_LINKS}test_a_cut_that_heals_in_time_loses_no_byte",
        ),
    ),
    Fault(
        "link cut one way",
        "a proxy that passes one direction only",
        ("P6", "P7"),
        6,
        (f"{_BAD_LINKS}test_a_link_cut_one_way_holds_no_command_beyond_its_deadline_and_heals",),
    ),
    Fault(
        "RST",
        "a proxy that resets every connection: in the key exchange, with streams open, and twice during a job",
        ("P1", "P5"),
        60,
        (
            f"{_BAD_LINKS}test_a_reset_ends_every_stream_at_once_and_the_next_connection_stands",
            f"{_BAD_LINKS}test_a_reset_in_the_middle_of_the_key_exchange_is_an_error_that_names_the_host",
            f"{_BAD_LINK_JOBS}test_a_reset_is_got_over_and_no_byte_is_lost_or_doubled",
            "tests/integration/test_fetch.py::test_a_link_that_is_reset_amid_a_fetch_is_made_anew",
        ),
    ),
    Fault(
        "1 Mbit/s under a flood of logs",
        "tc on both ends of a host's cable while a rank prints 0.8 MB at once; a slow pipe under 20 MB",
        ("P3", "P5", "P6"),
        30,
        (
            f"{_BAD_LINK_JOBS}test_a_narrow_link_under_a_flood_of_logs_is_never_silent_and_stops_in_time",
            "tests/agent/test_wire.py::test_a_heartbeat_passes_a_flood_of_logs_on_a_slow_link",
        ),
    ),
    Fault(
        "a link far away",
        "a proxy that holds each piece back for 0.1 s, both ways",
        ("P7",),
        20,
        (f"{_BAD_LINKS}test_a_link_far_away_works",),
    ),
    Fault(
        "many hosts dead",
        "of hundreds a few live; the others refuse, drop what is sent, take a connection without a word, or have a "
        "name that no name server answers for; and 10 places for 60 that never answer",
        ("P6", "P7"),
        60,
        (
            f"{_DEAD}test_live_hosts_are_found_before_any_that_never_answers_is_given_up",
            f"{_DEAD}test_what_is_done_on_live_hosts_does_not_wait_for_dead_ones",
            f"{_DEAD}test_what_is_not_settled_at_the_end_is_told_so_and_not_as_out_of_reach",
            f"{_DEAD}test_who_is_waited_for_and_until_when_is_said_after_a_moment",
            f"{_DEAD}test_who_reads_data_is_told_nothing_meanwhile",
            f"{_DEAD}test_what_many_hosts_have_made_is_not_looked_through_for_garbage_again_and_again",
            "tests/unit/transport/test_turns.py::test_an_answer_is_found_however_many_places_are_taken_by_those_who_never_answer",
        ),
    ),
    Fault(
        "jump host dies",
        "the one of a running job switched off and on again; the sshd of one ended under an open stream",
        ("P1", "P5", "P6"),
        30,
        (
            f"{_BAD_LINK_JOBS}test_a_jump_host_that_dies_makes_the_hosts_behind_it_unknown_and_ends_nothing",
            f"{_ROUTES}test_the_end_of_a_jump_host_ends_what_goes_through_it_and_is_got_over",
            f"{_ROUTES}test_a_jump_host_that_cannot_be_reached_is_named",
        ),
    ),
    Fault(
        "command that reaches a host is missing, ends, hangs or prints without end",
        "with `exec`: no such program; one that ends with words, passes no stdin on, makes a terminal, closes its "
        "pipes; forty that hang beside a good one; banners before the first byte",
        ("P6", "P7", "P8"),
        8,
        (
            f"{_EXEC}test_commands_that_fail_in_every_way_are_named_and_hold_up_no_other_host",
            f"{_COMMAND}test_a_command_that_hangs_without_a_word_is_given_up_in_time_with_all_it_started",
            f"{_COMMAND}test_a_banner_before_the_first_byte_is_passed_over",
            f"{_COMMAND}test_a_command_that_closes_its_stdin_ends_what_is_written",
            f"{_COMMAND}test_a_command_that_is_not_started_in_time_is_given_up",
        ),
    ),
    Fault(
        "command that reaches a host killed or frozen, or orphaned",
        "SIGKILL, twice, and SIGSTOP to the nsenter by which a controller reaches an isolated host, while logs flow; "
        "SIGKILL to the controller",
        ("P1", "P5", "P6"),
        30,
        (
            f"{_EXEC}test_commands_that_are_killed_under_a_job_are_started_again_and_no_byte_is_lost",
            f"{_EXEC}test_a_command_that_freezes_under_a_job_is_exchanged_for_another",
            f"{_EXEC}test_a_controller_that_is_killed_leaves_no_command_and_the_next_one_goes_on",
        ),
    ),
    Fault(
        "host gone for its command, or restarted behind it",
        "a command that says for a while that there is no such host; a host switched off and on, with another PID 1; a "
        "container of a real docker restarted (`make docker`)",
        ("P1", "P2", "P5", "P6"),
        30,
        (
            f"{_EXEC}test_a_host_that_its_command_does_not_find_is_unknown_with_its_words_and_taken_up_again",
            f"{_EXEC}test_a_host_restarted_behind_its_command_fails_the_job_with_the_reason",
            "tests/engines/test_exec_docker.py::test_a_restarted_container_fails_its_job_and_takes_another",
        ),
    ),
)
