"""The faults dttui has to bear, as data: how each is made to happen, what must hold all the same, and what shows it."""

from __future__ import annotations

from dataclasses import dataclass

PROMISES = {
    "P1": "The death of dttui, of an agent or of the network never stops a job that has started.",
    "P2": "No gang starts by half: all nodes run, or every node that can be reached is proven clean and the others are "
    "named as lost.",
    "P3": "Stopped means that the GPUs are free, or the job says `unkillable` and names what is left.",
    "P4": "Every change of state that was acknowledged survives `kill -9`.",
    "P5": "No byte of a log is lost, doubled or out of order without a mark in the copy.",
    "P6": "Silence becomes “unknown since” a time within 30 s; never ok, and never failed.",
    "P7": "A bad host never delays the others beyond its own deadline.",
    "P8": "Nothing that comes from a host can drive the terminal or run code on the login node.",
}
"""What the README promises."""

NOTHING = "nothing"


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    injected: str
    """How a test makes it happen, for real."""
    promises: tuple[str, ...]
    """What has to hold, by the keys of `PROMISES`."""
    within_s: float
    """By when it is told or got over; the tests assert it, with room for a machine under load."""
    tests: tuple[str, ...]
    """What shows it: `tests/…/file.py::test_name`."""
    left: str = NOTHING
    """What may stay behind afterwards."""


_BAD_LINKS = "tests/faults/test_bad_links.py::"
_BAD_LINK_JOBS = "tests/faults/test_jobs_on_bad_links.py::"
_SILENT = "tests/faults/test_silent_servers.py::"
_TRANSPORT = "tests/integration/test_ssh_transport.py::"
_ROUTES = "tests/integration/test_ssh_routes.py::"
_HOSTS = "tests/faults/test_bad_hosts.py::"
_PORT = "tests/faults/test_master_port.py::"
_HALF = "tests/faults/test_half_gangs.py::"
_SHELLS = "tests/faults/test_login_shells.py::"
_LIARS = "tests/faults/test_lying_agents.py::"
_KILLED = "tests/faults/test_killed_agents.py::"
_DEATHS = "tests/faults/test_deaths.py::"
_STOPPED = "tests/faults/test_stopped_and_doubled.py::"
_TAKEN = "tests/faults/test_take_over.py::"
_WORDS = "tests/faults/test_hostile_words.py::"
_GPUS = "tests/faults/test_hostile_gpus.py::"
_DISK = "tests/faults/test_disk_full.py::"
_ELASTIC = "tests/faults/test_elastic.py::"
_LOGIN = "tests/faults/test_login_node.py::"

FAULTS = (
    # The link
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
    # The way in
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
            "tests/unit/test_known_hosts.py::test_revoked_keys_are_marked_and_certificate_authorities_left_out",
        ),
    ),
    Fault(
        "noisy, slow or dying login shell",
        "a .bashrc that prints escape sequences and 5,000 lines, one that sleeps, one that exits, on three hosts",
        ("P7", "P8"),
        30,
        (
            f"{_SHELLS}test_start_up_files_that_print_sleep_or_exit_cost_their_own_host_at_most",
            "tests/unit/test_agent_client.py::test_a_shell_that_prints_without_end_is_cut_off",
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
    Fault(
        "a node of an elastic job dies",
        "SIGKILL to torchrun on one of three nodes, then to the controller; a host switched off, or cut off a while",
        ("P1", "P3", "P6"),
        150,
        (
            f"{_ELASTIC}test_a_node_that_dies_is_named_and_the_others_resume_without_it_to_a_good_end",
            f"{_ELASTIC}test_a_host_that_is_switched_off_is_lost_and_the_others_train_on_to_a_good_end",
            f"{_ELASTIC}test_a_host_that_comes_back_after_the_others_went_on_is_ended_and_takes_part_no_more",
        ),
    ),
    Fault(
        "an elastic job cannot go on",
        "SIGKILL to torchrun on the master, and on one of two nodes that are both needed",
        ("P3",),
        45,
        (
            f"{_ELASTIC}test_the_masters_death_ends_an_elastic_job_and_is_named",
            f"{_ELASTIC}test_a_job_that_has_fewer_nodes_than_it_needs_ends",
        ),
    ),
    Fault(
        "the rendezvous' host of an elastic job is switched off",
        "the power of the master's host, while the other ranks train",
        ("P3",),
        180,
        (f"{_ELASTIC}test_the_rendezvous_host_that_is_switched_off_ends_the_job_and_is_named",),
    ),
    # The login node
    Fault(
        "dttui and its controller stopped by SIGSTOP",
        "both stopped while the ranks run on, for 65 s: longer than any lease, and than a bridge waits; then SIGCONT",
        ("P1", "P5"),
        30,
        (
            f"{_STOPPED}test_a_job_runs_on_while_dttui_and_its_controller_are_stopped_and_no_line_is_lost",
            f"{_TAKEN}test_a_controller_that_was_stopped_for_a_while_goes_on_without_blaming_a_host",
        ),
    ),
    Fault(
        "dttui killed",
        "SIGKILL to the client of a running job",
        ("P1", "P3"),
        30,
        (f"{_STOPPED}test_a_job_outlives_its_terminal_and_is_stopped_from_another",),
    ),
    Fault(
        "controller killed in every phase",
        "SIGKILL to it at named moments from the first check to the last event, twice in a row too, and for good",
        ("P1", "P2", "P3", "P4", "P5"),
        120,
        (
            f"{_TAKEN}test_what_was_never_a_whole_gang_is_cleared_and_has_failed",
            f"{_TAKEN}test_a_whole_gang_goes_on_to_its_real_end_and_nothing_is_lost_or_told_twice",
            f"{_TAKEN}test_a_stop_that_was_under_way_is_carried_out",
            f"{_TAKEN}test_an_attach_follows_through_the_deaths_of_two_controllers_and_has_the_job_s_exit_code",
            f"{_TAKEN}test_a_torn_event_of_a_killed_controller_is_cut_and_numbers_go_on",
            "tests/faults/test_dead_controller.py::"
            "test_a_job_whose_controller_was_killed_is_stopped_gracefully_and_its_logs_go_on",
            "tests/faults/test_dead_controller.py::test_a_forced_stop_needs_no_grace",
            f"{_HALF}test_what_a_controller_that_was_killed_had_prepared_is_free_again_after_a_while",
        ),
    ),
    Fault(
        "controller killed beside a cut link",
        "a host's cable pulled out, then SIGKILL to the controller; `attach`, and the cable put back",
        ("P1", "P5", "P6"),
        60,
        (f"{_LOGIN}test_a_controller_killed_beside_a_cut_link_is_followed_by_one_that_waits_for_the_host",),
    ),
    Fault(
        "login node restarted",
        "its processes killed, its files torn; dttui then runs under another boot id, with clocks that began anew, "
        "and with /run and /tmp emptied",
        ("P1", "P3", "P4", "P5", "P6"),
        60,
        (
            f"{_LOGIN}test_after_a_restart_of_the_login_node_the_job_is_unknown_and_then_followed_to_its_end",
            f"{_LOGIN}test_after_a_restart_of_the_login_node_a_job_can_be_stopped",
        ),
    ),
    Fault(
        "the ssh-agent goes",
        "a real ssh-agent killed, a connection that took its key broken, then the controller killed too",
        ("P1", "P5", "P6"),
        60,
        (f"{_LOGIN}test_without_the_ssh_agent_it_started_with_a_job_is_unknown_until_an_attach_brings_one",),
    ),
    Fault(
        "two dttui at once",
        "two jobs submitted at the same moment for the same GPUs",
        ("P2",),
        60,
        (
            f"{_STOPPED}test_of_two_dttui_that_want_the_same_gpus_at_once_one_runs_and_the_other_says_who_has_them",
            f"{_HALF}test_of_two_launches_at_once_onto_the_same_slots_one_wins_and_the_other_is_told_whose_they_are",
        ),
    ),
    # The agents
    Fault(
        "agent killed at prepare and start",
        "the daemon killed before each kind of change that it makes on disk, and at random moments",
        ("P1", "P2", "P4"),
        30,
        (
            f"{_KILLED}test_a_daemon_killed_at_each_step_of_a_launch_keeps_its_word_and_starts_nothing_twice",
            f"{_DEATHS}test_a_daemon_killed_at_any_moment_of_a_launch_starts_nothing_twice_and_forgets_nothing",
            f"{_DEATHS}test_a_supervisor_without_the_attempts_lock_starts_nothing",
            f"{_DEATHS}test_a_supervisor_that_gets_no_secrets_because_the_daemon_died_starts_nothing",
        ),
    ),
    Fault(
        "agent killed at a write into the journal",
        "the supervisor killed in the middle of a record, and at random moments",
        ("P3", "P4"),
        30,
        (
            f"{_KILLED}test_a_supervisor_killed_in_the_middle_of_a_record_leaves_nothing_and_its_earlier_records_stand",
            f"{_DEATHS}test_a_supervisor_killed_at_any_moment_leaves_nothing_and_is_told",
            f"{_DEATHS}test_a_daemonised_grandchild_with_a_clean_environment_outlives_no_supervisor",
        ),
    ),
    Fault(
        "old supervisor under a new agent",
        "an upgrade while a job runs",
        ("P1", "P3"),
        120,
        (
            "tests/faults/test_upgrade_under_a_job.py::"
            "test_a_job_goes_on_through_an_upgrade_and_can_be_stopped_and_all_be_removed",
            "tests/integration/test_deploy_many.py::test_the_daemon_of_the_version_before_ends_and_the_new_one_takes_over",
        ),
    ),
    Fault(
        "a host restarted",
        "the supervisor killed, and its records changed by the test: another boot, in which a stranger has its pid",
        ("P3", "P4"),
        30,
        (f"{_DEATHS}test_after_a_reboot_nobody_with_an_old_pid_is_touched",),
    ),
    Fault(
        "agents of another version",
        "answers of an older agent as they were recorded; a recorded older client at the agent of today; one without a "
        "common version, made up by the test",
        ("P7",),
        30,
        (
            "tests/unit/test_old_agent.py::test_every_answer_of_an_older_agent_is_understood",
            "tests/faults/test_compatibility.py::test_an_older_client_gets_every_answer_it_knows",
            "tests/unit/test_old_agent.py::test_without_a_common_version_both_are_named_and_the_remedy",
        ),
    ),
    Fault(
        "an agent that lies about frames and ids",
        "a bridge that sends nonsense, endless lines, deep nesting, and answers nobody asked for",
        ("P5", "P7", "P8"),
        30,
        (
            f"{_LIARS}test_answers_that_nobody_asked_for_change_nothing",
            f"{_LIARS}test_a_lie_that_is_told_once_costs_a_connection_at_most",
        ),
    ),
    Fault(
        "an agent that lies about offsets, names and sequence numbers",
        "a bridge that moves offsets, names files and ranks that are not the job's, tells of gaps and news without "
        "end, of times that no clock shows, and repeats samples or leaps over some",
        ("P5", "P7", "P8"),
        30,
        (
            f"{_LIARS}test_an_agent_that_goes_on_lying_about_logs_is_given_up_by_name",
            f"{_LIARS}test_bytes_that_are_said_to_be_gone_are_told_as_gone",
            f"{_LIARS}test_an_agent_that_tells_of_gaps_without_end_is_given_up_by_name",
            f"{_LIARS}test_samples_that_do_not_go_on_are_taken_once",
            f"{_LIARS}test_samples_that_leap_keep_nobody_busy",
            f"{_LIARS}test_news_without_end_keep_nobody_busy_and_fill_no_disk",
            f"{_LIARS}test_a_time_that_no_clock_shows_becomes_the_time_at_which_it_was_heard",
        ),
    ),
    Fault(
        "forced stop of a job whose logs are longer than the link can bring in time",
        "a follower that is hurried while the host has more of some logs and all of others",
        ("P5",),
        30,
        (f"{_LIARS}test_what_a_forced_stop_leaves_behind_is_marked_where_there_is_more_of_it_alone",),
    ),
    Fault(
        "escape sequences and markup in everything a host can say",
        "a bridge on real hosts that adds them to every string: host and GPU names, users, versions, errors; a job "
        "that prints them and names a file so",
        ("P8",),
        60,
        (
            f"{_WORDS}test_nothing_a_host_says_drives_a_terminal_forges_markup_or_fills_a_format",
            f"{_WORDS}test_the_screen_shows_lying_hosts_as_text",
            f"{_GPUS}test_no_name_of_a_gpu_a_process_a_user_or_a_kernel_drives_the_terminal_or_floods_it",
            f"{_GPUS}test_an_agent_that_sends_10_mb_of_a_kernel_s_name_is_cut_off_by_name",
            f"{_GPUS}test_the_screen_shows_gpus_of_any_name_as_text",
            "tests/agent/test_top.py::test_names_of_devices_and_mount_points_drive_no_terminal_from_the_metrics",
            "tests/tui/test_run_screen.py::test_hostile_logs_events_and_errors_are_shown_as_plain_text",
            "tests/tui/test_compose_list.py::"
            "test_hostile_names_and_reasons_neither_break_the_screen_nor_reach_the_terminal",
            "tests/unit/test_preflight_hosts.py::test_what_a_host_says_cannot_drive_the_terminal",
        ),
    ),
    # The start
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
            "tests/unit/test_preflight_run.py::test_versions_that_differ_are_a_table_of_most_and_others",
        ),
    ),
    # The run
    Fault(
        "one rank dies",
        "a rank that exits with 3 on one of three hosts; torchrun killed by SIGKILL",
        ("P3",),
        60,
        (
            f"{_HOSTS}test_a_rank_that_exits_with_3_is_named_and_leaves_no_process_on_any_host",
            f"{_DEATHS}test_torchrun_killed_leaves_no_rank",
        ),
    ),
    Fault(
        "hosts lost to a job that has ended",
        "their loss and the job's end, written into its events by the test; their ranks run on until `dttui stop`",
        ("P3",),
        120,
        (f"{_TAKEN}test_a_stop_of_a_job_that_ended_with_lost_hosts_looks_at_them_again_and_ends_what_is_left",),
    ),
    Fault(
        "a disk that fills up",
        "a small file system that the job's own output fills, or the test while the job runs",
        ("P3", "P4"),
        60,
        (
            f"{_DISK}test_a_job_that_fills_the_disk_is_told_with_its_exit_and_that_its_log_is_cut",
            f"{_DISK}test_a_full_disk_is_told_while_the_job_runs_and_does_not_keep_it_from_being_stopped",
        ),
        left="what the job wrote",
    ),
)
"""Every fault, in the order of a launch."""
