"""An engine that does not run fails its tests where engines are required, and the host does not forbid containers."""

from __future__ import annotations

import pytest

from tests.engines import requirement


@pytest.mark.parametrize(
    ("required", "container", "outcome"),
    [
        ("1", ("true",), pytest.fail.Exception),
        ("1", ("false",), pytest.skip.Exception),
        ("", ("true",), pytest.skip.Exception),
    ],
)
def test_who_requires_engines_gets_no_skip_but_from_a_host_that_forbids_containers(
    required: str, container: tuple[str, ...], outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DTTUI_REQUIRE_ENGINES", required)
    monkeypatch.setattr(requirement, "CONTAINER", container)
    with pytest.raises(outcome, match="docker run fails here"):
        requirement.refused("docker run fails here")


def test_who_requires_engines_is_told_of_one_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DTTUI_REQUIRE_ENGINES", "1")
    with pytest.raises(pytest.fail.Exception, match="no docker"):
        requirement.missing("there is no docker")
