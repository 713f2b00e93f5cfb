"""The agents, and what hosts may claim."""

from __future__ import annotations

from tests.faults.fault import Fault

_LIARS = "tests/faults/test_lying_agents.py::"
_KILLED = "tests/faults/test_killed_agents.py::"
_DEATHS = "tests/faults/test_deaths.py::"
_GONE = "tests/faults/test_agent_gone.py::"
_WORDS = "tests/faults/test_hostile_words.py::"
_GPUS = "tests/faults/test_hostile_gpus.py::"

ROWS = (
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
        (
            f"{_DEATHS}test_after_a_reboot_nobody_with_an_old_pid_is_touched",
            f"{_DEATHS}test_nobody_with_an_old_pid_is_a_supervisor_while_the_one_before_still_ends",
        ),
    ),
    Fault(
        "agents of another version",
        "answers of an older agent as they were recorded; a recorded older client at the agent of today; one without a "
        "common version, made up by the test",
        ("P7",),
        30,
        (
            "tests/unit/rpc/test_old_agent.py::test_every_answer_of_an_older_agent_is_understood",
            "tests/faults/test_compatibility.py::test_an_older_client_gets_every_answer_it_knows",
            "tests/unit/rpc/test_old_agent.py::test_without_a_common_version_both_are_named_and_the_remedy",
        ),
    ),
    Fault(
        "an agent that lies about frames and ids",
        "a bridge that sends nonsense, endless lines, deep nesting, and answers nobody asked for",
        ("P5", "P7", "P8"),
        30,
        (
            f"{_LIARS}test_answers_that_come_twice_change_nothing",
            f"{_LIARS}test_a_lie_that_is_told_once_costs_a_connection_at_most",
        ),
    ),
    Fault(
        "one bad host among many",
        "an agent of 13 that floods: answers to no call, 4 MiB of values or text, deep nesting, a reason of 1 MB and a "
        "state that change each time, lines and logs without end, a byte at a time, 3,000 samples at once",
        ("P7",),
        60,
        ("tests/faults/test_crowd.py::test_one_bad_host_costs_the_others_nothing_and_fills_no_disk",),
    ),
    Fault(
        "forced stop of a job whose logs are longer than the link can bring in time",
        "a follower that is hurried while the host has more of some logs and all of others",
        ("P5",),
        30,
        (f"{_LIARS}test_what_a_forced_stop_leaves_behind_is_marked_where_there_is_more_of_it_alone",),
    ),
    Fault(
        "the agent's directory is removed under a running job",
        "on a real host: the whole of it, only the link to the version in use, its interpreter, its socket, a job's "
        "directory; the daemon killed and not to be started; the supervisor killed besides",
        ("P1", "P3", "P5", "P6"),
        60,
        (
            f"{_GONE}test_an_agent_that_is_gone_is_told_as_that_and_deployed_anew_under_the_running_job",
            f"{_GONE}test_a_stop_without_the_agent_is_prompt_and_says_what_to_do_and_does_it_after_that",
            f"{_GONE}test_a_part_of_the_directory_that_is_gone_is_made_anew_by_those_who_live",
            f"{_GONE}test_ranks_that_nobody_has_records_of_any_more_are_ended_by_their_marks",
        ),
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
            "tests/unit/preflight/test_hosts.py::test_what_a_host_says_cannot_drive_the_terminal",
            "tests/integration/test_fetch.py::test_links_pipes_and_hostile_names_of_a_script_stay_on_its_host",
            "tests/unit/fetching/test_listing.py::test_a_name_that_leads_out_or_shows_as_another_is_not_taken",
            "tests/unit/fetching/test_file_transfer.py::"
            "test_nothing_is_written_along_a_link_or_in_place_of_a_directory",
        ),
    ),
)
