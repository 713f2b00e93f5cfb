"""The login node: dttui, its controller and its disk."""

from __future__ import annotations

from tests.faults.fault import Fault

_HALF = "tests/faults/test_half_gangs.py::"
_STOPPED = "tests/faults/test_stopped_and_doubled.py::"
_TAKEN = "tests/faults/test_take_over.py::"
_GONE = "tests/faults/test_terminal_gone.py::"
_AGAIN = "tests/faults/test_restarts.py::"
_LOGIN = "tests/faults/test_login_node.py::"
_ALONE = "tests/faults/test_unattended.py::"
_FULL = "tests/faults/test_full_login_node.py::"
_QUEUE = "tests/faults/test_queue.py::"

ROWS = (
    Fault(
        "a job that waits for its hosts, killed or kept from one of them",
        "SIGKILL to the controller of the first of three that wait; a cable pulled out; narrow jobs that keep asking",
        ("P4", "P7"),
        90,
        (
            f"{_QUEUE}test_a_waiter_that_is_killed_leaves_the_line_and_has_its_place_again_when_it_is_brought_back",
            f"{_QUEUE}test_a_job_that_waits_for_a_host_out_of_reach_lets_others_by_and_begins_once_it_is_back",
            f"{_QUEUE}test_a_wide_job_gets_its_turn_though_narrow_ones_keep_asking",
        ),
    ),
    Fault(
        "a job for which several hosts do, while all of them are taken, cannot be reached or are too small",
        "three hosts with a job each, which end one after another; SIGKILL to the controller of who waited; a cable "
        "pulled out",
        ("P4", "P7"),
        90,
        (
            "tests/faults/test_any_hosts.py::test_a_job_begins_on_whichever_of_its_hosts_have_room_first",
            "tests/faults/test_any_hosts.py::test_what_no_host_of_its_kind_could_be_is_passed_over",
            "tests/faults/test_any_hosts.py::"
            "test_spares_of_a_job_that_began_elsewhere_are_checked_before_they_are_needed",
            f"{_QUEUE}test_a_host_that_cannot_take_part_is_passed_over_and_one_out_of_reach_holds_up_nobody",
        ),
    ),
    Fault(
        "jobs that wait while another is started again",
        "SIGKILL to the ranks of a job, ten seconds before its next attempt, while another job waits for its GPUs",
        ("P2",),
        240,
        ("tests/faults/test_lost_turn.py::test_a_job_that_is_started_again_comes_before_those_who_wait_for_its_hosts",),
    ),
    Fault(
        "GPUs that another gets after a job's turn has come",
        "all GPUs of a host set aside for somebody else between the preflight and `prepare` of a job that has waited",
        ("P2",),
        120,
        (
            "tests/faults/test_lost_turn.py::"
            "test_a_job_whose_gpus_another_got_after_its_turn_had_come_waits_again_and_runs",
        ),
    ),
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
        "a controller is halted, or hangs, and is to stop its job",
        "SIGSTOP to it, then `dttui stop` and what that tells to do, SIGCONT or SIGKILL; one that never answers a "
        "stop, ctrl+c in `apply` and `attach`, and the screen",
        ("P1", "P3"),
        60,
        (
            f"{_STOPPED}test_a_stop_says_that_the_controller_is_halted_and_what_it_tells_to_do_stops_the_job",
            "tests/unit/launch/test_stop_request.py::test_a_controller_that_does_not_answer_is_named_with_its_process",
            "tests/unit/cli/test_interrupts.py::test_an_interrupt_that_the_controller_does_not_answer_says_what_to_do",
            "tests/unit/cli/test_interrupts.py::"
            "test_who_leaves_a_job_whose_controller_gives_no_sign_of_life_is_told_what_to_do",
            "tests/tui/test_run_stopping.py::test_a_controller_that_does_not_answer_is_named_with_what_to_do",
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
        "terminal gone without a signal",
        "the pseudo-terminal of the screen, of `--apply`, `attach` and `logs -f` closed, which controls no process",
        ("P1",),
        10,
        (
            f"{_GONE}test_the_screen_ends_when_its_terminal_has_gone_without_a_signal",
            f"{_GONE}test_a_question_whose_terminal_has_gone_is_not_answered",
            f"{_GONE}test_top_ends_when_its_terminal_has_gone_without_a_signal",
            f"{_GONE}test_who_follows_a_job_leaves_with_the_terminal_and_the_job_goes_on",
        ),
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
        "controller killed before any of its records",
        "SIGKILL to it before every fourth record that it writes of a job that is started again, on isolated hosts; "
        "before each of them by `make thorough`",
        ("P1", "P2", "P3", "P4"),
        120,
        (
            f"{_AGAIN}test_a_job_that_fails_is_started_again_where_its_policy_allows_that",
            f"{_AGAIN}test_a_controller_killed_before_any_of_its_records_leaves_a_job_that_the_next_one_ends_well",
            f"{_AGAIN}test_a_controller_killed_around_the_promise_of_a_restart_leaves_a_job_that_the_next_one_ends_well",
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
        "login node restarted while nobody is there",
        "its controller killed, and a rank too while nobody looks; then the line that `doctor` advises for cron is run "
        "with an empty environment: with a secret in secrets.env, with one that went with the session, and with a key "
        "that has a passphrase",
        ("P1", "P3", "P4", "P6"),
        90,
        (
            f"{_ALONE}test_an_entry_of_cron_brings_a_job_back_that_recovers_and_ends_without_anybody",
            f"{_ALONE}test_a_job_whose_secret_went_with_the_session_waits_for_it_and_takes_it_from_who_attaches",
            f"{_ALONE}test_a_job_that_takes_a_passphrase_waits_for_a_person_while_its_ranks_train_on",
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
        "the login node's disk is full, or has become read-only",
        "a small file system below the job's directory, filled while the job runs and from the start; a directory, or "
        "only that of logs or telemetry, remounted read-only",
        ("P1", "P3", "P4", "P5"),
        30,
        (
            f"{_FULL}test_a_job_is_told_to_its_end_on_a_full_disk_and_written_once_there_is_room",
            f"{_FULL}test_a_job_is_told_to_its_end_where_its_directory_or_a_part_of_it_becomes_read_only",
            f"{_FULL}test_a_login_node_that_is_full_from_the_start_launches_nothing_and_says_why",
        ),
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
)
