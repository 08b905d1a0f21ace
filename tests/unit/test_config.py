from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragassay.config import parse, read
from ragassay.errors import ConfigError

MINIMAL = """
name = "small"
defense = ["trustrag"]
[dataset]
plugin = "atlas"
[generator]
plugin = "scripted"
script = "extract"
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(MINIMAL, encoding="utf-8")
    return path


def test_defaults_are_filled_in_and_unknown_keys_of_a_plug_in_are_its_options(small: Path) -> None:
    file, raw = read(small)
    assert raw == MINIMAL.encode()
    assert file.budgets == (1, 5)
    assert file.retriever[0].k == 5
    assert file.generator[0].options == {"script": "extract"}
    assert [d.title for d in file.defense] == ["trustrag"]


def test_overrides_set_append_and_reach_into_lists(small: Path) -> None:
    file, _ = read(
        small,
        [
            "retriever.k=10",
            "defense+=my/own.py:KeepShort",
            'defense.0={plugin="trustrag", label="TR"}',
            "generator.text=plain words",
            "budgets=[2]",
        ],
    )
    assert file.retriever[0].k == 10
    assert [d.title for d in file.defense] == ["TR", "KeepShort"]
    assert file.generator[0].options["text"] == "plain words"
    assert file.budgets == (2,)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("nothing", "expected key.path=value"),
        ("defense.7=x", "no position in a list of 1"),
        ("name.x=1", "plain value"),
        ("name+=1", "is not a list"),
        ("retreiver.k=3", "did you mean 'retriever'"),
        ("prompt.ordre='rank'", "did you mean 'order'"),
        ("retriever.k=0", "retriever.k"),
        ("retriever.k='5'", "retriever.k"),
        ("budgets=[]", "budgets must be distinct and not empty"),
        ("budgets=[1,1]", "budgets must be distinct and not empty"),
        ("defense=['none','trustrag','trustrag']", "give one a 'label'"),
        ("scoring.headline='nope'", "not among the rules"),
        ("attack=[]", "at least one [[attack]]"),
        ("name='../escape'", "name"),
        ("prompt.titles='False'", "prompt.titles"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_the_key(
    small: Path, override: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(small, [override])
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ({"name": "x", "generator": {"plugin": "scripted"}}, "[dataset] is missing"),
        ({"name": "x", "dataset": "atlas"}, "[generator] is missing"),
        ({"name": "x", "dataset": {}, "generator": "scripted"}, "[dataset.plugin] is missing"),
    ],
)
def test_a_missing_table_is_named(tree: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match="missing") as caught:
        parse(tree)
    assert expected in str(caught.value)


def test_a_missing_file_suggests_its_neighbor(small: Path) -> None:
    with pytest.raises(ConfigError, match=r"did you mean .*small\.toml"):
        read(small.with_name("smal.toml"))


def test_bad_toml_and_bad_encoding_name_the_file(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("name = \nseed = 1", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML.*line 1"):
        read(broken)
    broken.write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read(broken)
