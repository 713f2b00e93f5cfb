"""How an exception is told: by its own words and place, also where a process or a library passes it on."""

from __future__ import annotations

import pytest

from dttui.diagnosis.diagnose import diagnose
from dttui.diagnosis.exceptions import headline, raised_at
from tests.unit.diagnosis.test_diagnosis import cause_of, evidence, failed, lines, text_of


def test_an_exception_of_the_script_is_told_with_its_own_line_and_not_a_library_s() -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "/w/train.py", line 41, in step\n    x()\n'
        '  File "/opt/lib/python3.11/site-packages/torch/nn.py", line 9, in x\n    raise ValueError\nValueError: bad\n'
    )
    found = cause_of(failed(0, "ValueError: bad", traceback=traceback))
    assert found == ("exception", "The script raised ValueError in train.py, line 41, function step: bad")


def test_an_error_that_torch_passes_on_from_a_worker_is_told_by_its_own_words() -> None:
    error = (
        "KeyError: Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
        '  File "/w/data.py", line 7, in __getitem__\n    return row["image"]\nKeyError: \'image\'\n'
    )
    assert cause_of(failed(0, error)) == ("exception", "The script raised KeyError: 'image'")


def passed_on(kind: str, message: str, by: str = "DataLoader worker process 0") -> str:
    """Return what torch raises once more, in whose traceback are more lines than a message is followed over."""
    library = "".join(
        f'  File "/opt/lib/python3.11/site-packages/torch/utils/data/{name}.py", line 7, in {name}\n    return {name}'
        "(input, normalized_shape)\n"
        for name in ("worker", "fetch", "collate", "each", "one", "tensors", "stack")
    )
    begin = f"{kind}: Caught {kind.rpartition('.')[2]} in {by}.\nOriginal Traceback (most recent call last):\n"
    return f"{begin}{library}{kind}: {message}\n"


STACKED = "stack expects each tensor to be equal size, but got [3, 224, 180] at entry 0 and [3, 224, 200] at entry 1"
OWN = 'Traceback (most recent call last):\n  File "/w/train.py", line 30, in <module>\n    for batch in loader:\n'


@pytest.mark.parametrize("mark", ["", "[rank0]: "])
def test_an_error_of_a_worker_is_told_from_what_was_printed_too_with_what_to_look_at(mark: str) -> None:
    text = OWN + passed_on("RuntimeError", STACKED)
    words = f"The script raised RuntimeError in train.py, line 30: {STACKED}"
    recorded = failed(0, passed_on("RuntimeError", STACKED), traceback=text)
    for failure in (recorded, failed(0, lines=lines(*(mark + line for line in text.splitlines())))):
        cause = diagnose(evidence(failure)).cause
        assert cause is not None
        assert (cause.code, cause.words) == ("exception", words)
        assert "print the shapes" in cause.advice[0]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (passed_on("FileNotFoundError", "[Errno 2] No such file or directory: '/data/x.jpg'"), "missing-file"),
        (
            passed_on(
                "torch.cuda.OutOfMemoryError",
                "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.00 GiB of which "
                "1.00 MiB is free.",
                "replica 0 on device 0",
            ),
            "cuda-oom",
        ),
        ("torch.cuda.OutOfMemoryError: Caught OutOfMemoryError in replica 0 on device 0.", "exception"),
        (passed_on("RuntimeError", passed_on("RuntimeError", "odd", "replica 1 on device 1")), "exception"),
    ],
)
def test_an_error_that_torch_passes_on_has_the_cause_of_the_one_that_was_raised(error: str, code: str) -> None:
    assert cause_of(failed(0, error))[0] == code
    assert cause_of(failed(0, error, traceback=OWN + error))[0] == code


def test_lines_of_a_library_in_a_traceback_that_is_passed_on_advise_nothing() -> None:
    error = passed_on("RuntimeError", "odd", "pin memory thread for device 0")
    (advice,) = diagnose(evidence(failed(0, error))).cause.advice  # type: ignore[union-attr]  # it has a cause
    assert "traceback says where" in advice


def test_a_message_that_begins_below_its_type_is_told() -> None:
    error = "RuntimeError: \n        An attempt has been made to start a new process\n        before"
    words = "The script raised RuntimeError: An attempt has been made to start a new process"
    assert cause_of(failed(0, error)) == ("exception", words)


def test_the_same_exception_on_all_hosts_may_name_what_each_had_before_it() -> None:
    texts = ("KeyError: 'row 17'", "KeyError: 'row 18'")
    one, two = (f"{OWN}{text}\n" for text in texts)
    found = diagnose(evidence(failed(0, texts[0], traceback=one), failed(2, texts[1], traceback=two, time=101.0)))
    words = "The script raised KeyError in train.py, line 30: 'row 17'"
    assert found.headline == f"on all 2 hosts alike: {words}"
    elsewhere = two.replace("line 30", "line 31")
    apart = diagnose(evidence(failed(0, texts[0], traceback=one), failed(2, texts[1], traceback=elsewhere)))
    assert apart.first is not None
    assert not apart.first.is_shared


def test_an_exception_in_another_process_is_found_in_the_message_that_passes_it_on() -> None:
    error = (
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 0 terminated with the following error:\n"
        'Traceback (most recent call last):\n  File "x", line 1\n'
        "FileNotFoundError: [Errno 2] No such file or directory: '/d'\n"
    )
    assert cause_of(failed(0, error))[0] == "missing-file"
    assert headline(error) == "FileNotFoundError: [Errno 2] No such file or directory: '/d'"


def test_a_traceback_all_in_libraries_has_no_place_of_the_script() -> None:
    assert raised_at('  File "/opt/lib/python3.11/runpy.py", line 1, in f\n') is None
    assert raised_at('  File "/opt/env/bin/yolo", line 8, in <module>\n') is None
    assert raised_at(None) is None


@pytest.mark.parametrize("mark", ["", "[rank0]: ", "[default0]:", "[0]: "])
def test_a_traceback_that_torch_printed_with_the_rank_before_each_line_is_told_once(mark: str) -> None:
    traceback = 'Traceback (most recent call last):\n  File "train.py", line 4, in step\nValueError: bad\n'
    printed = ("before", *(mark + text for text in traceback.splitlines()), "destroy_process_group() was not called")
    told = text_of(diagnose(evidence(failed(0, "ValueError: bad", traceback=traceback, lines=lines(*printed)))))
    assert told.count("line 4, in step") == 1
    assert "before" in told
    assert "destroy_process_group() was not called" in told
    cut = lines(*printed[2:])
    told = text_of(diagnose(evidence(failed(0, "ValueError: bad", traceback=traceback, lines=cut))))
    assert told.count("line 4, in step") == 1, "the log may begin in the middle of it"
