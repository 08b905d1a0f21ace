from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ragassay import prompts
from ragassay.canon import digest, dumps, rng_for
from ragassay.errors import ConfigError
from ragassay.types import Sampling


def test_equal_values_have_equal_bytes_and_different_ones_do_not() -> None:
    assert dumps({"b": 1, "a": (1, 2)}) == dumps({"a": [1, 2], "b": 1})
    assert digest(Sampling()) == digest(Sampling(temperature=0.0))
    assert digest(Sampling()) != digest(Sampling(temperature=0.5))
    assert digest(["a|b"]) != digest(["a", "b"])
    assert digest("\ud800") != digest("?")


@pytest.mark.parametrize("value", [float("nan"), object(), {1: 2}, {"x": {3}}])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        dumps(value)


def test_seeds_derive_from_all_parts() -> None:
    first = rng_for(1, "a").integers(2**62, size=3)
    assert np.array_equal(first, rng_for(1, "a").integers(2**62, size=3))
    assert not np.array_equal(first, rng_for(1, "b").integers(2**62, size=3))


def test_slots_are_filled_in_one_pass_so_that_a_passage_cannot_fill_another_slot() -> None:
    template = prompts.parse("t", "@@ system\nBe brief.\n@@ user\n{{contexts}}\nQ: {{question}}\n")
    system, user = template.render({"contexts": "see {{question}} \\1 \\g<0>", "question": "why?"})
    assert system.content == "Be brief."
    assert user.content == "see {{question}} \\1 \\g<0>\nQ: why?"


def test_a_template_needs_turns_values_and_a_known_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must start with a line"):
        prompts.parse("t", "no turns")
    with pytest.raises(ConfigError, match="needs a value for 'question'"):
        prompts.load("answer").render({"contexts": ""})
    with pytest.raises(ConfigError, match="answer"):
        prompts.load("unknown_prompt")
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"@@ user\n\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        prompts.load(str(bad))


def test_a_users_file_is_a_prompt_and_its_text_decides_the_digest(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("@@ user\r\nQ {{question}} C {{contexts}}", encoding="utf-8", newline="")
    template = prompts.load(str(mine))
    assert template.digest == prompts.parse("x", "@@ user\nQ {{question}} C {{contexts}}").digest
