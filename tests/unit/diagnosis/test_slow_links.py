"""Which links count as slow, and when a host does."""

from __future__ import annotations

import pytest

from dttui.diagnosis.slow_links import LEAST_BYTES, Link, LinkUse, host_of, sentence, slow_links

MB = 10**6
FAST = LinkUse(300 * MB, 0.5, 5.0)
SLOW = LinkUse(5 * MB, 4.0, 5.0)


def ring(**others: LinkUse) -> dict[Link, LinkUse]:
    """Return what goes around three hosts."""
    uses = {("a", "b"): FAST, ("b", "c"): FAST, ("c", "a"): FAST}
    return uses | {(name[0], name[1]): use for name, use in others.items()}


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        (ring(), []),
        (ring(ab=SLOW), ["ab"]),
        (ring(ab=SLOW, ca=SLOW), ["ab", "ca"]),
        (ring(ab=SLOW, bc=SLOW, ca=SLOW), []),
        (ring(ab=LinkUse(250 * MB, 1.2, 5.0)), []),
        (ring(ab=LinkUse(LEAST_BYTES - 1, 4.0, 5.0)), []),
        (ring(ab=LinkUse(2 * MB, 0.5, 5.0)), []),
        (ring(ab=LinkUse(0, 0.0, 0.0)), []),
        (ring(ab=SLOW, bc=LinkUse(300 * MB, 0.0, 5.0)), ["ab"]),
        ({("a", "b"): SLOW, ("b", "a"): FAST}, []),
        ({}, []),
    ],
    ids=[
        "all alike",
        "one",
        "two of three",
        "all slow",
        "twice as slow",
        "little sent",
        "little used",
        "nothing sent",
        "others too fast to be timed",
        "two hosts",
        "none",
    ],
)
def test_a_link_is_slow_by_a_third_of_the_others_rate_while_it_is_in_use(
    uses: dict[Link, LinkUse], expected: list[str]
) -> None:
    assert sorted("".join(link) for link in slow_links(uses)) == expected


@pytest.mark.parametrize(
    ("links", "host"),
    [
        ([("a", "b"), ("c", "a")], "a"),
        ([("a", "b"), ("a", "c")], "a"),
        ([("b", "a"), ("c", "a"), ("d", "a")], "a"),
        ([("a", "b")], None),
        ([("a", "b"), ("b", "a")], None),
        ([("a", "b"), ("c", "d")], None),
        ([], None),
    ],
)
def test_a_host_is_named_where_all_that_is_slow_leads_to_it_or_from_it_alone(
    links: list[Link], host: str | None
) -> None:
    assert host_of(links) == host


def test_it_is_told_with_both_rates() -> None:
    slow = [*slow_links(ring(ab=SLOW)).values()]
    assert sentence(slow).endswith("from a to b is slow: 1.25 MB/s where others have 600 MB/s, in use 80% of the time")
    slow = [*slow_links(ring(ab=SLOW, ca=SLOW)).values()]
    assert sentence(slow).startswith("the network of a is slow: 1.25 MB/s where others have ")
