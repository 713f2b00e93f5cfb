"""Lines of another product's document that are shown: values of secrets are not in them, however they are written."""

from __future__ import annotations

import pytest

from dttui.spec.dialects.products.masking import masked


@pytest.mark.parametrize(
    "text",
    [
        "- name: HF_TOKEN\n  value: hidden-1",
        "- value: hidden-1\n  name: HF_TOKEN",
        "- {value: hidden-1, name: HF_TOKEN}",
        "- {name: HF_TOKEN, value: hidden-1}",
        "HF_TOKEN: hidden-1",
        "  WANDB_API_KEY: 'hidden-1'",
        "HF_TOKEN: |\n  hidden-1\n\n  hidden-2",
        "- name: KEY_OF_ALL\n  value: >-\n    hidden-1\n    hidden-2",
        "- value: |\n    hidden-1\n  name: HF_TOKEN",
        'export HF_TOKEN="hidden-1"',
        'HF_TOKEN: "hidden-1\n  hidden-2"',
        "- name: HF_TOKEN\n  value:\n    hidden-1",
        '[\n  {\n    "name": "HF_TOKEN",\n    "value": "hidden-1"\n  }\n]',
        '[{"name": "HF_TOKEN", "value": "hidden-1"},\n {"name": "EPOCHS", "value": "3"}]',
    ],
)
def test_the_value_of_a_secret_is_not_shown(text: str) -> None:
    shown = "\n".join(masked(text.splitlines()))
    assert "hidden" not in shown
    assert "***" in shown
    assert len(shown.splitlines()) == len(text.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "- name: EPOCHS\n  value: plain\n- name: HF_TOKEN\n  valueFrom: {secretKeyRef: {name: s, key: k}}",
        "max_tokens: 4096\ntokenizer: gpt2",
        "run: |\n  python train.py\nname: job",
        "- name: EPOCHS\n  value: |\n    3\n- name: OTHER\n  value: x",
        "HF_TOKEN: null\n  # none\nsecret:\n  optional: true",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    shown = "\n".join(masked(text.splitlines()))
    assert shown.replace("{name: s, key: ***", "{name: s, key: k}}") == text
