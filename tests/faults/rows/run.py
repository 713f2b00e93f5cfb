"""The run: what ranks and hosts do while they train."""

from __future__ import annotations

from tests.faults.fault import Fault

_HOSTS = "tests/faults/test_bad_hosts.py::"
_LIARS = "tests/faults/test_lying_agents.py::"
_DEATHS = "tests/faults/test_deaths.py::"
_TAKEN = "tests/faults/test_take_over.py::"
_DISK = "tests/faults/test_disk_full.py::"
_ELASTIC = "tests/faults/test_elastic.py::"
_TAMPERED = "tests/faults/test_tampering.py::"
_APART = "tests/faults/test_trained_apart.py::"
_RECOVERY = "tests/faults/test_recovery.py::"
_RESUMING = "tests/faults/test_resuming.py::"
_TRAINS_ON = "tests/faults/test_trains_on.py::"
_FRAMEWORKS = "tests/frameworks/test_recovery.py::"
_COPIES = "tests/faults/test_copies.py::"
_PARTS = "tests/faults/test_parts_on_own_disks.py::"
_OWN = "tests/faults/test_own_disks.py::"
_ALERTS = "tests/faults/test_alert_restarts.py::"
_AMID = "tests/faults/test_amid_recovery.py::"
_AMID_APART = "tests/faults/test_amid_recovery_apart.py::"
_HEALTH = "tests/faults/test_health.py::"
_HANG = "tests/faults/test_hang.py::"
_BENCH = "tests/faults/test_bench.py::"
_SHARE = "tests/faults/test_communication_share.py::"
_STRAGGLERS = "tests/faults/test_stragglers.py::"
_SLOW_LINKS = "tests/faults/test_slow_links.py::"
_GPUS = "tests/faults/test_gpu_watch.py::"
_TOGETHER = "tests/integration/test_together.py::"

ROWS = (
    Fault(
        "ranks stand still",
        "on three hosts, one rank does not come to a collective (it reads, it waits for a lock, its data loader "
        "waits), calls another one or with another size, or is halted by SIGSTOP; with py-spy on the hosts and without",
        ("P7",),
        120,
        (
            f"{_HANG}test_each_rank_is_told_where_it_stands_and_the_one_that_the_others_wait_for_is_named",
            f"{_HANG}test_without_py_spy_a_rank_is_asked_by_a_signal_and_by_torchs_server_where_its_script_keeps_that_for_"
            "itself",
        ),
    ),
    Fault(
        "a hang",
        "each of these in a job that starts again for a hang, and a long phase without a line in one that does not",
        ("P3", "P7"),
        150,
        (
            f"{_HANG}test_a_hang_is_told_with_where_each_rank_stands_and_the_job_starts_again_and_ends_well",
            f"{_HANG}test_a_job_that_hung_goes_on_from_a_directory_that_all_see",
            f"{_HANG}test_a_long_phase_is_told_and_goes_on_to_a_good_end",
        ),
    ),
    Fault(
        "a collective takes too long",
        "on three hosts, one rank does not come to a collective for which the job allows 5 s; the others raise, and "
        "the job starts again for that",
        ("P3", "P7"),
        150,
        (f"{_HANG}test_a_collective_in_which_a_rank_is_missing_for_too_long_costs_an_attempt",),
    ),
    Fault(
        "a host is unhealthy by the job's own command",
        "on one of three hosts the command fails for some seconds, and leaves a process at each run; in a job that "
        "starts again for it, and in one that does not",
        ("P3", "P7"),
        120,
        (
            f"{_HEALTH}test_an_unhealthy_host_is_named_and_its_job_starts_again_and_ends_well",
            f"{_HEALTH}test_an_unhealthy_host_is_told_and_taken_back_once_it_is_healthy_again",
        ),
    ),
    Fault(
        "one rank is slow",
        "on three hosts one rank takes longer to compute than the others for a while, or all the time in a job that "
        "has a spare; and ranks that are all alike",
        ("P7",),
        120,
        (
            f"{_STRAGGLERS}test_a_slow_rank_is_named_with_what_it_costs_and_taken_back_once_it_is_as_fast_as_others",
            f"{_STRAGGLERS}test_equal_ranks_are_never_named",
            f"{_STRAGGLERS}test_a_spare_takes_the_place_of_a_slow_host_at_the_next_checkpoint",
            f"{_STRAGGLERS}test_a_spare_takes_the_place_of_a_slow_host_where_all_see_one_directory",
        ),
    ),
    Fault(
        "one link is slow",
        "on three hosts what one host sends and is sent falls to 10 Mbit/s while ranks train, or what it sends to one "
        "other, with and without checkpoints that are copied; and all links alike at 50 Mbit/s",
        ("P7",),
        90,
        (
            f"{_SLOW_LINKS}test_a_slow_network_of_a_host_is_named_and_taken_back_once_it_is_as_fast_as_others",
            f"{_SLOW_LINKS}test_a_slow_link_from_one_host_to_another_is_named_alone",
            f"{_SLOW_LINKS}test_a_slow_link_is_named_alone_while_checkpoints_are_copied_over_it",
            f"{_SLOW_LINKS}test_a_slow_link_is_named_alone_where_all_save_in_one_directory",
            f"{_SLOW_LINKS}test_equal_links_are_never_named",
        ),
    ),
    Fault(
        "heat slows a GPU",
        "one of two equal GPUs (a stub's) that both compute falls to half of its clock for some seconds",
        ("P7",),
        60,
        (f"{_GPUS}test_a_gpu_whose_clock_falls_is_named_while_that_lasts_and_equal_ones_are_not",),
    ),
    Fault(
        "a GPU breaks under a rank",
        "the driver (a stub's) reports Xid 79 of a rank's GPU, and the rank dies of SIGABRT, with "
        "`on_node_failure: replace` and a spare",
        ("P3",),
        120,
        (f"{_GPUS}test_a_rank_that_aborts_after_an_xid_of_its_gpu_has_a_spare_take_over",),
    ),
    Fault(
        "silence while GPUs compute",
        "no step and no line, with `on_hang: restart`, while all GPUs (a stub's) compute, and then only spin",
        ("P3", "P7"),
        120,
        (f"{_GPUS}test_a_silent_job_whose_gpus_compute_is_ended_only_once_they_stop",),
    ),
    Fault(
        "one rank is slow where none can say who waits for whom",
        "of three ranks of `framework: command` one takes 0.5 s for a step and the others 0.1 s, for a while",
        ("P7",),
        120,
        (
            "tests/faults/test_slow_steps.py::test_a_rank_that_takes_longer_for_its_steps_is_named_and_taken_back_once_it_does_not",
        ),
    ),
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
        "a rank or torchrun dies in a job that is to be started again",
        "SIGKILL to either on the embedded cluster; commands that fail again and again, with new steps and without; a "
        "script's own error",
        ("P3", "P4"),
        120,
        (
            f"{_RECOVERY}test_a_rank_that_is_killed_costs_an_attempt_and_the_next_one_tells_what_it_cost",
            f"{_RECOVERY}test_a_training_whose_torchrun_is_killed_goes_on_from_its_checkpoint",
            f"{_RECOVERY}test_three_failures_in_a_row_without_a_new_step_are_enough",
            f"{_RECOVERY}test_a_host_at_which_two_attempts_failed_is_set_aside_for_a_spare_and_named",
            f"{_RECOVERY}test_new_steps_give_a_job_all_its_restarts_again",
            f"{_RECOVERY}test_a_scripts_own_error_is_not_tried_again",
            f"{_RECOVERY}test_the_job_decides_for_itself_what_is_tried_again",
        ),
    ),
    Fault(
        "a job stands still, and says so",
        "a rank that prints what an alert with action: restart waits for, and sleeps; the controller killed as it ends;"
        " ranks that print on without a further step",
        ("P2", "P4"),
        60,
        (
            f"{_ALERTS}test_an_alert_restarts_its_job",
            f"{_ALERTS}test_a_restart_for_an_alert_goes_on_under_another_controller",
            f"{_ALERTS}test_steps_that_stand_still_restart_their_job_though_its_ranks_print",
        ),
    ),
    Fault(
        "a training loses a rank, and then its master's host",
        "SIGKILL to a rank; later all of the master's processes, its agent too, halted by SIGSTOP until a spare trains",
        ("P2", "P3"),
        300,
        (
            f"{_TRAINS_ON}test_ddp_trains_on_from_its_checkpoint",
            f"{_TRAINS_ON}test_fsdp_trains_on_from_its_sharded_checkpoint",
            f"{_FRAMEWORKS}test_deepspeed_trains_on_from_its_checkpoint",
            f"{_FRAMEWORKS}test_megatron_trains_on_from_its_checkpoint",
            f"{_FRAMEWORKS}test_horovod_trains_on_from_its_checkpoint",
            f"{_FRAMEWORKS}test_tensorflow_trains_on_from_its_checkpoint",
        ),
    ),
    Fault(
        "a rank dies while a checkpoint is written",
        "a rank that exits with 3 after two complete checkpoints and half of a third, in a directory of the job's and "
        "in one of the attempt's own",
        ("P3",),
        120,
        (f"{_RESUMING}test_the_next_attempt_is_told_the_newest_complete_checkpoint",),
    ),
    Fault(
        "a rank is killed, or a host lost, whose host has its shards on a disk of its own",
        "SIGKILL to one of two ranks after checkpoints by torch.distributed.checkpoint, or by a file of each rank's, "
        "of which each host has its part alone; the controller killed as these are searched, sent or joined; either "
        "host switched off, of whose shards another has a copy",
        ("P3",),
        240,
        (
            f"{_PARTS}test_fsdp2_goes_on_from_shards_of_which_each_host_has_its_own_alone",
            f"{_PARTS}test_fsdp2_goes_on_from_copies_of_the_shards_of_a_host_that_was_lost",
            f"{_TRAINS_ON}test_fsdp_trains_on_from_the_parts_that_each_host_has_on_its_own_disk",
        ),
    ),
    Fault(
        "attempt after attempt leaves its checkpoints",
        "a rank that exits with 3 in two attempts in a row, after two complete checkpoints and half of a third each, "
        "beside checkpoints of another job",
        ("P3",),
        120,
        (f"{_RESUMING}test_after_three_attempts_those_that_are_to_stay_are_left_and_what_others_wrote",),
        left="the half ones, and all that the other job wrote",
    ),
    Fault(
        "nobody asks after a job that fences itself",
        "the link of a host cut until a spare has taken its place; the controller halted by SIGSTOP for longer than "
        "self_fence_s, and let go on; an agent's daemon killed",
        ("P2", "P3"),
        240,
        (
            f"{_RECOVERY}test_a_host_that_hears_nothing_ends_its_ranks_by_itself_while_its_link_is_cut",
            f"{_RECOVERY}test_hosts_that_hear_of_no_controller_end_their_ranks_and_a_late_one_starts_the_job_again",
            "tests/agent/test_self_fence.py::test_an_attempt_whose_daemon_is_killed_ends_by_itself",
        ),
    ),
    Fault(
        "a host off in a job that is to be started again",
        "a host switched off, the master's too, with a spare, with fewer nodes, or on again; a link cut and mended "
        "once the spare has begun",
        ("P2", "P3"),
        240,
        (
            f"{_RECOVERY}test_a_spare_takes_the_place_of_a_host_that_is_off_the_masters_too",
            f"{_RECOVERY}test_a_host_that_comes_back_is_cleared_and_the_replacement_is_not_touched",
            f"{_RECOVERY}test_without_a_spare_the_gang_begins_again_once_its_host_is_back",
            f"{_RECOVERY}test_with_min_nodes_the_gang_goes_on_without_its_host",
            f"{_RECOVERY}test_the_only_host_of_a_job_is_replaced_where_a_spare_shows_that_it_is_not_us_who_are_cut_off",
        ),
        left="what ran on a host that does not come back",
    ),
    Fault(
        "a host lost in mid-run that comes back after its job's end",
        "a link cut, and mended when nobody follows the job any more: `attach` ends what runs there, and fetches the "
        "rest of its log",
        ("P3", "P5"),
        180,
        (f"{_RECOVERY}test_what_a_lost_host_printed_after_it_was_lost_is_fetched_by_attach_once_it_answers",),
    ),
    Fault(
        "spares of no use in a job that loses a host",
        "a host switched off whose spares are, in turn, an address where nobody is, too small, without interpreter, "
        "and well; the same spares at a launch",
        ("P2", "P3"),
        240,
        (
            f"{_RECOVERY}test_spares_that_are_off_too_small_or_refused_by_their_checks_are_passed_over_and_cost_no_restart",
            f"{_RECOVERY}test_a_launch_tells_of_spares_of_no_use_and_is_refused_for_none",
        ),
        left="what ran on a host that does not come back",
    ),
    Fault(
        "the master's host off with the checkpoints on its own disk",
        "the host switched off, or cut off until a spare has begun, that alone has written checkpoints, once another "
        "has a copy: with a spare, without one, and with a training; or two hosts at once, of which a third has copies",
        ("P2", "P3"),
        300,
        (
            f"{_COPIES}test_a_spare_in_the_masters_place_gets_the_copy_that_another_host_kept",
            f"{_COPIES}test_a_training_whose_masters_host_is_off_ends_with_the_losses_and_parameters_of_one_that_was_not",
            f"{_COPIES}test_a_host_that_goes_on_alone_begins_with_the_copy_that_it_kept_itself",
            f"{_COPIES}test_of_two_copies_each_the_last_host_goes_on_from_its_own_when_both_others_are_off_at_once",
        ),
        left="what ran on a host that does not come back",
    ),
    Fault(
        "a training with checkpoints on the disks of its hosts loses torchrun, a supervisor, or bits of a checkpoint",
        "the first host alone writes, and the second has copies; SIGKILL to torchrun on the second, or to the first's "
        "supervisor; a bit of the newest changed before a rank is killed, on the first host, and then on both;"
        " torchrun, and the master's host, where all see one directory",
        ("P3",),
        400,
        (
            f"{_OWN}test_a_training_goes_on_from_its_own_disks_as_if_nothing_had_been",
            f"{_OWN}test_a_training_goes_on_from_a_directory_that_all_see_as_if_nothing_had_been",
            f"{_OWN}test_where_bits_have_changed_a_copy_is_trained_on_from_and_where_its_have_too_the_checkpoint_before",
        ),
    ),
    Fault(
        "a host of an elastic job off, the rendezvous' too, which is to continue",
        "the master's host switched off, or all processes of that or another halted, while three hosts train by "
        "torchrun's c10d",
        ("P3",),
        300,
        (
            f"{_TRAINS_ON}test_ddp_continues_without_a_host_with_the_losses_of_a_whole_run",
            f"{_TRAINS_ON}test_fsdp_continues_without_a_host_with_the_losses_of_a_whole_run",
            f"{_ELASTIC}test_a_job_that_is_to_continue_survives_its_rendezvous_host_by_another_attempt_of_those_that_are_left",
        ),
        left="what ran on a host that does not come back",
    ),
    Fault(
        "controller killed in a recovery",
        "SIGKILL to it while another attempt is waited for, launched, and run, with a spare on isolated hosts; while "
        "it waits, and then `dttui stop`",
        ("P1", "P4"),
        240,
        (
            f"{_RECOVERY}test_a_controller_killed_while_a_spare_takes_over_is_followed_by_one_that_goes_on",
            f"{_RECOVERY}test_a_job_that_waits_for_another_attempt_says_until_when_and_can_be_stopped",
        ),
        left="what ran on a host that does not come back",
    ),
    Fault(
        "a supervisor or its journal lost in a job that is started again",
        "on hosts with a shared directory of checkpoints, SIGKILL to a supervisor; four times more, with the daemon, "
        "and the journal torn, with a bit flipped, empty, or with records of a later version",
        ("P2", "P3", "P4"),
        200,
        (
            f"{_AMID}test_whatever_became_of_a_supervisor_or_its_journal_the_next_attempt_begins_where_it_should",
            f"{_AMID_APART}test_on_own_disks_too_the_next_attempt_begins_where_it_should_whatever_became_of_a_supervisor_"
            "or_its_journal",
        ),
    ),
    Fault(
        "ranks deaf to a stop, pids of others, another boot",
        "in a job that is started again: ranks that ignore SIGTERM, with children in sessions of their own; the pids "
        "of what was killed had by other processes; a host switched off and on; another boot id while all runs on",
        ("P2", "P3"),
        200,
        (
            f"{_AMID}test_no_rank_outlives_its_attempt_and_whoever_has_its_pid_after_it_lives_on",
            f"{_AMID_APART}test_on_own_disks_too_no_rank_outlives_its_attempt_and_whoever_has_its_pid_lives_on",
            f"{_DEATHS}test_a_supervisor_that_lives_hears_of_a_stop_though_the_host_says_that_it_has_booted_since",
        ),
    ),
    Fault(
        "an hour between the clocks of hosts",
        "one an hour ahead and one an hour behind, while a rank on each is killed in turn",
        ("P3",),
        200,
        (
            f"{_AMID}test_an_hour_between_the_clocks_of_hosts_changes_nothing_of_a_recovery",
            f"{_AMID_APART}test_on_own_disks_too_an_hour_between_the_clocks_of_hosts_changes_nothing_of_a_recovery",
        ),
    ),
    Fault(
        "login node restarted in a recovery",
        "the controller killed while a host that is off is waited for, its log torn and of the future; dttui on "
        "another boot, with clocks that began anew",
        ("P1", "P4"),
        200,
        (
            f"{_AMID}test_a_login_node_that_is_restarted_amid_a_recovery_goes_on_with_that",
            f"{_AMID_APART}test_on_own_disks_too_a_login_node_that_is_restarted_amid_a_recovery_goes_on_with_that",
        ),
    ),
    Fault(
        "a checkpoint damaged, or cut by a full disk",
        "the newest cut short or with a digit changed before a rank is killed; a directory of checkpoints that fills "
        "up in the middle of a write; the same, half of one written, and the controller killed besides where each host "
        "has its checkpoints on a disk of its own",
        ("P3",),
        200,
        (
            f"{_AMID}test_a_damaged_checkpoint_is_passed_over_for_the_one_before",
            f"{_AMID}test_a_checkpoint_in_which_bits_have_changed_is_not_trained_on_from",
            f"{_AMID}test_a_checkpoint_for_which_the_disk_had_no_room_is_passed_over",
            f"{_AMID_APART}test_where_no_directory_is_shared_all_go_on_from_the_newest_that_each_host_has_whole",
            f"{_AMID_APART}test_where_no_directory_is_shared_a_full_disk_costs_all_hosts_what_its_own_could_not_write",
        ),
    ),
    Fault(
        "ranks that train apart",
        "scripts that form no process group, or several, and end well; an agent that does not tell of groups",
        ("P9",),
        60,
        (
            f"{_APART}test_two_trainings_that_end_well_are_told_as_two_wherever_it_is_looked",
            f"{_APART}test_a_group_that_is_required_and_not_formed_makes_a_good_end_a_failure",
            f"{_TOGETHER}test_a_job_of_moments_is_judged_by_the_groups_that_its_ranks_formed",
            f"{_TOGETHER}test_an_agent_that_does_not_tell_of_groups_is_refused_at_the_start_where_one_is_required",
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
        "somebody on the training network writes to an elastic job's rendezvous",
        "a client of its store on a host that is none of its nodes: a pickle that runs code, states of another attempt "
        "and an earlier round, keys deleted, taken away and given back, overwritten all the time",
        ("P3",),
        120,
        (
            f"{_TAMPERED}test_no_code_runs_of_who_writes_to_the_rendezvous",
            f"{_TAMPERED}test_a_rendezvous_that_is_disturbed_holds_or_its_end_is_told",
            f"{_TAMPERED}test_states_of_an_earlier_round_and_of_another_attempt_are_known",
        ),
    ),
    Fault(
        "the rendezvous' host of an elastic job is switched off",
        "the power of the master's host, while the other ranks train",
        ("P3",),
        180,
        (f"{_ELASTIC}test_the_rendezvous_host_that_is_switched_off_ends_the_job_and_is_named",),
    ),
    Fault(
        "an agent that lies about offsets, names and sequence numbers",
        "a bridge that moves offsets, names files and ranks that are not the job's, tells of gaps and news without "
        "end, of times that no clock shows, of ranks that are others', and repeats samples or leaps over some",
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
            f"{_LIARS}test_a_numbering_is_believed_of_elastic_jobs_alone_and_within_their_world",
        ),
    ),
    Fault(
        "the first failure is none of a rank's own",
        "the host of the master switched off while another rank loses its peer; a rank in a control group whose "
        "limit of memory it exceeds; a rank killed just after another process of its host has exceeded such a limit",
        ("P4", "P6"),
        120,
        (
            "tests/faults/test_one_cause.py::test_a_master_that_is_switched_off_is_the_cause_wherever_it_is_told",
            "tests/faults/test_one_cause.py::test_a_rank_that_its_cgroup_s_limit_killed_is_told_as_that",
            "tests/faults/test_one_cause.py::test_a_kill_for_memory_of_somebody_else_on_the_host_is_not_taken_for_the_ranks",
        ),
    ),
    Fault(
        "one host's link is slow",
        "10 Mbit/s on the cable of one of three hosts, while `dttui bench` measures",
        ("P7",),
        240,
        (f"{_BENCH}test_a_slow_link_is_named_with_its_bandwidth_and_plans_count_on_it",),
    ),
    Fault(
        "a link slows a training",
        "80 Mbit/s, then 20, on the cable of one of two hosts whose ranks measure their communication",
        ("P7",),
        90,
        (f"{_SHARE}test_the_share_of_communication_grows_as_the_link_slows_and_is_told_beside_the_estimates",),
    ),
    Fault(
        "one link between two hosts is slow",
        "10 Mbit/s, and 1,000 bytes for the smallest packet, between two of three hosts, while links are measured "
        "from the screen",
        ("P7",),
        240,
        (f"{_BENCH}test_exactly_the_one_slow_link_is_named_and_screen_and_estimate_follow",),
    ),
)
