"""Which faults of isolated hosts are tested where all see one directory of checkpoints, and where each has a disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_AMID = "tests/faults/test_amid_recovery.py::"
_APART = "tests/faults/test_amid_recovery_apart.py::"
_COPIES = "tests/faults/test_copies.py::"
_HANG = "tests/faults/test_hang.py::"
_OWN = "tests/faults/test_own_disks.py::"
_RECOVERY = "tests/faults/test_recovery.py::"
_STRAGGLERS = "tests/faults/test_stragglers.py::"
_SPARE_SHARED = f"{_STRAGGLERS}test_a_spare_takes_the_place_of_a_slow_host_where_all_see_one_directory"
_LINKS = "tests/faults/test_slow_links.py::"
_LINK_SHARED = f"{_LINKS}test_a_slow_link_is_named_alone_where_all_save_in_one_directory"

_OUTLIVES = f"{_AMID}test_no_rank_outlives_its_attempt_and_whoever_has_its_pid_after_it_lives_on"
_JOURNAL = f"{_AMID}test_whatever_became_of_a_supervisor_or_its_journal_the_next_attempt_begins_where_it_should"
_NEWEST = f"{_APART}test_where_no_directory_is_shared_all_go_on_from_the_newest_that_each_host_has_whole"
_CUT_OFF = f"{_COPIES}test_a_spare_in_the_masters_place_gets_the_copy_that_another_host_kept"
_FULL_DISK = f"{_APART}test_where_no_directory_is_shared_a_full_disk_costs_all_hosts_what_its_own_could_not_write"
_HANGS_SHARED = "tests/faults/test_hang.py::test_a_job_that_hung_goes_on_from_a_directory_that_all_see"
_HANGS = f"{_HANG}test_a_hang_is_told_with_where_each_rank_stands_and_the_job_starts_again_and_ends_well"
_RECORDS = (
    "tests/faults/test_restarts.py::"
    "test_a_controller_killed_before_any_of_its_records_leaves_a_job_that_the_next_one_ends_well"
)
_GOES_ON = f"{_OWN}test_a_training_goes_on_from_its_own_disks_as_if_nothing_had_been"
_BITS = f"{_OWN}test_where_bits_have_changed_a_copy_is_trained_on_from_and_where_its_have_too_the_checkpoint_before"
_SPARE = f"{_RECOVERY}test_a_spare_takes_the_place_of_a_host_that_is_off_the_masters_too"


_OUTLIVES_APART = f"{_APART}test_on_own_disks_too_no_rank_outlives_its_attempt_and_whoever_has_its_pid_lives_on"
_JOURNAL_APART = (
    f"{_APART}"
    "test_on_own_disks_too_the_next_attempt_begins_where_it_should_whatever_became_of_a_supervisor_or_its_journal"
)
_LOGIN_APART = f"{_APART}test_on_own_disks_too_a_login_node_that_is_restarted_amid_a_recovery_goes_on_with_that"
_CLOCKS_APART = f"{_APART}test_on_own_disks_too_an_hour_between_the_clocks_of_hosts_changes_nothing_of_a_recovery"
_SHARED = f"{_OWN}test_a_training_goes_on_from_a_directory_that_all_see_as_if_nothing_had_been"


@dataclass(frozen=True)
class OnDisks:
    """One fault, and what of it is tested by where checkpoints lie."""

    name: str
    shared: tuple[str, ...] = ()
    """Tests in which all hosts see one directory of checkpoints."""
    own: tuple[str, ...] = ()
    """Tests in which each host has its own disk."""
    neither: tuple[str, ...] = ()
    """Tests of isolated hosts whose script keeps no checkpoint."""
    lacks: str = ""
    """What is not tested; never empty where one of the first two is."""
    thorough: Mapping[str, str] = field(default_factory=dict)
    """Of these, those whose cases of this fault run in `make thorough` alone → which cases; empty for all."""


ON_DISKS = (
    OnDisks("a rank killed", (_OUTLIVES,), (_NEWEST,)),
    OnDisks(
        "torchrun killed",
        (_SHARED,),
        (_GOES_ON,),
        thorough={_SHARED: ""},
    ),
    OnDisks("supervisor killed", (_JOURNAL,), (_GOES_ON,)),
    OnDisks(
        "a host off",
        (_OUTLIVES,),
        (_OUTLIVES_APART,),
        (_SPARE,),
        thorough={_OUTLIVES_APART: ""},
    ),
    OnDisks(
        "the master's host off",
        (_SHARED,),
        (
            f"{_COPIES}"
            "test_a_training_whose_masters_host_is_off_ends_with_the_losses_and_parameters_of_one_that_was_not",
            f"{_COPIES}test_a_host_that_goes_on_alone_begins_with_the_copy_that_it_kept_itself",
            f"{_COPIES}test_of_two_copies_each_the_last_host_goes_on_from_its_own_when_both_others_are_off_at_once",
        ),
        (_SPARE,),
        thorough={_SHARED: ""},
    ),
    OnDisks(
        "the link cut, and mended once the replacement has begun",
        (f"{_RECOVERY}test_a_host_that_comes_back_is_cleared_and_the_replacement_is_not_touched",),
        (_CUT_OFF,),
        lacks="own disks: that no step is there twice",
        thorough={_CUT_OFF: ""},
    ),
    OnDisks("three failures in a row", (_JOURNAL,), (_JOURNAL_APART,), thorough={_JOURNAL_APART: ""}),
    OnDisks(
        "a checkpoint half written",
        (f"{_AMID}test_a_damaged_checkpoint_is_passed_over_for_the_one_before",),
        (_NEWEST,),
        thorough={_NEWEST: "one without its `COMPLETE`"},
    ),
    OnDisks(
        "a checkpoint with bits changed",
        (f"{_AMID}test_a_checkpoint_in_which_bits_have_changed_is_not_trained_on_from",),
        (_BITS,),
    ),
    OnDisks(
        "a checkpoint on a full disk",
        (f"{_AMID}test_a_checkpoint_for_which_the_disk_had_no_room_is_passed_over",),
        (_FULL_DISK,),
        thorough={_FULL_DISK: ""},
    ),
    OnDisks(
        "the controller killed in each phase of a recovery",
        (),
        (_NEWEST,),
        (
            f"{_RECOVERY}test_a_controller_killed_while_a_spare_takes_over_is_followed_by_one_that_goes_on",
            _RECORDS,
        ),
        "a shared directory with checkpoints in it; own disks: any phase but the first",
        {_RECORDS: "three of four records"},
    ),
    OnDisks(
        "the login node restarted in a recovery",
        (f"{_AMID}test_a_login_node_that_is_restarted_amid_a_recovery_goes_on_with_that",),
        (_LOGIN_APART,),
        thorough={_LOGIN_APART: ""},
    ),
    *(
        OnDisks(name, (_OUTLIVES,), (_OUTLIVES_APART,), thorough={_OUTLIVES_APART: ""})
        for name in (
            "ranks deaf to SIGTERM, with children in sessions of their own",
            "pids had by others",
            "another boot id, though nothing was started anew",
        )
    ),
    OnDisks(
        "a journal torn, flipped, empty, of the future", (_JOURNAL,), (_JOURNAL_APART,), thorough={_JOURNAL_APART: ""}
    ),
    OnDisks(
        "an hour between the clocks of hosts",
        (f"{_AMID}test_an_hour_between_the_clocks_of_hosts_changes_nothing_of_a_recovery",),
        (_CLOCKS_APART,),
        thorough={_CLOCKS_APART: ""},
    ),
    OnDisks(
        "a hang of each kind",
        (_HANGS_SHARED,),
        (_HANGS,),
        thorough={_HANGS_SHARED: "all but a collective left out", _HANGS: "all but a data loader's"},
    ),
    OnDisks(
        "one slow rank",
        (_SPARE_SHARED,),
        (f"{_STRAGGLERS}test_a_spare_takes_the_place_of_a_slow_host_at_the_next_checkpoint",),
        (f"{_STRAGGLERS}test_a_slow_rank_is_named_with_what_it_costs_and_taken_back_once_it_is_as_fast_as_others",),
        thorough={_SPARE_SHARED: ""},
    ),
    OnDisks(
        "one slow link",
        (_LINK_SHARED,),
        (f"{_LINKS}test_a_slow_link_is_named_alone_while_checkpoints_are_copied_over_it",),
        (
            f"{_LINKS}test_a_slow_link_from_one_host_to_another_is_named_alone",
            "tests/faults/test_communication_share.py::"
            "test_the_share_of_communication_grows_as_the_link_slows_and_is_told_beside_the_estimates",
        ),
        thorough={_LINK_SHARED: ""},
    ),
)
"""In the order in which they are told of."""
