"""The lines that dttui writes into copies of logs, in the language of whoever reads them."""

from __future__ import annotations

import pytest
from dtagent.payload import rank

from dttui.i18n import set_language
from dttui.jobs.log_following import shown_line
from dttui.jobs.log_marks import retold

pytestmark = pytest.mark.usefixtures("english")

GAP = "… 1,000,000 bytes of this log were not kept on the host …"
GAP_ZH = "… 此日志有 1,000,000 字节未在主机上保留 …"


def test_a_mark_is_told_in_the_language_of_its_reader_whatever_it_was_written_in() -> None:
    assert [retold(GAP), retold(GAP_ZH)] == [GAP, GAP]
    set_language("zh")
    assert [retold(GAP), retold(GAP_ZH)] == [GAP_ZH, GAP_ZH]
    assert shown_line(f"{GAP}      ".encode()) == GAP_ZH, "a mark before a hole is filled up with blanks"


def test_the_mark_of_a_rank_that_was_started_again_is_told_in_the_language_of_its_reader() -> None:
    assert retold(rank.AGAIN) == rank.AGAIN
    set_language("zh")
    assert "torchrun 已重新启动" in retold(rank.AGAIN)


@pytest.mark.parametrize("line", ["", "step 1", "… and so on", f"rank 0: {GAP}", "… ,,, bytes of this log were lost …"])
def test_what_a_script_prints_is_left_as_it_is(line: str) -> None:
    set_language("zh")
    assert retold(line) == line
