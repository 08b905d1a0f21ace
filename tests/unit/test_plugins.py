from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ragassay import plugins
from ragassay.errors import ConfigError, PluginError
from ragassay.plugins import Defense, Found, build, describe, find, identity
from ragassay.tampering import Rule

OWN = '''
from dataclasses import dataclass
from ragassay import Verdict

@dataclass(frozen=True)
class KeepShort:
    """Keep short passages."""
    words: int = 20
    def apply(self, query, hits, tools):
        return Verdict(kept=tuple(h for h in hits if len(h.passage.text.split()) <= self.words))
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Has one option of each kind."""

    flag: bool = False
    share: float = 0.5
    names: tuple[str, ...] = ()
    needed: int
    threads: int = field(default=0, metadata={"identity": False})
    prompt: str = "answer"

    def __post_init__(self) -> None:
        if self.share > 1:
            raise ConfigError(f"need share <= 1, got {self.share}")


FOUND = Found(kind="defense", name="options", cls=Options, origin="1")


def test_options_are_checked_against_the_fields_of_the_class() -> None:
    built = build(FOUND, {"needed": 3, "share": 1, "names": ["a", "b"]})
    assert built == Options(needed=3, share=1, names=("a", "b"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "needs the option 'needed'"),
        ({"needed": 1, "flg": True}, "did you mean 'flag'"),
        ({"needed": 1, "flag": "False"}, "option flag = 'False'"),
        ({"needed": "1"}, "option needed = '1'"),
        ({"needed": 1, "names": "ab"}, "option names = 'ab'"),
        ({"needed": 1, "share": 2.0}, "need share <= 1, got 2.0"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(FOUND, options)
    assert expected in str(caught.value)


def test_identity_covers_what_can_change_a_result_and_nothing_else(tmp_path: Path) -> None:
    plain = identity(FOUND, Options(needed=1))
    assert plain == identity(FOUND, Options(needed=1, threads=8))
    assert plain != identity(FOUND, Options(needed=2))
    assert plain != identity(Found(kind="defense", name="options", cls=Options, origin="2"),
                             Options(needed=1))  # fmt: skip
    mine = tmp_path / "mine.txt"
    mine.write_text("@@ user\n{{contexts}} {{question}}", encoding="utf-8")
    assert plain != identity(FOUND, Options(needed=1, prompt=str(mine)))


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(PluginError, match="did you mean 'trustrag'"):
        find("defense", "trustrga")


def test_a_class_in_a_file_needs_no_installation_and_its_source_is_its_origin(
    tmp_path: Path,
) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN, encoding="utf-8")
    found = find("defense", "own.py:KeepShort", folder=tmp_path)
    built = build(found, {"words": 5})
    assert isinstance(built, Defense)
    assert describe(found)["options"][0]["name"] == "words"
    before = found.origin
    file.write_text(OWN + "\n# changed\n", encoding="utf-8")
    assert find("defense", "own.py:KeepShort", folder=tmp_path).origin != before


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (None, "absent.py:X", "no such file"),
        ("1/0", "own.py:X", "fails to import: division by zero"),
        ("X = 3", "own.py:X", "has no class 'X'"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: str | None, name: str, expected: str) -> None:
    if content is not None:
        (tmp_path / "own.py").write_text(content, encoding="utf-8")
    with pytest.raises(PluginError, match=expected):
        find("defense", name, folder=tmp_path)


@pytest.fixture
def fresh_entry_points(monkeypatch: pytest.MonkeyPatch) -> Any:
    plugins._all_points.cache_clear()
    yield monkeypatch
    plugins._all_points.cache_clear()


def _distribution(folder: Path, name: str, entry: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[ragassay.defense]\n{entry}\n")


def test_a_name_claimed_by_two_distributions_is_an_error_that_names_both(
    tmp_path: Path, fresh_entry_points: pytest.MonkeyPatch
) -> None:
    _distribution(tmp_path, "one", "clash = a:A")
    _distribution(tmp_path, "two", "clash = b:B")
    fresh_entry_points.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    with pytest.raises(PluginError, match=r"registered twice: by (one|two).* and by (one|two)"):
        plugins.names("defense")


def test_a_plug_in_that_fails_to_import_names_its_distribution(
    tmp_path: Path, fresh_entry_points: pytest.MonkeyPatch
) -> None:
    _distribution(tmp_path, "broken", "broken = not_there_at_all:X")
    fresh_entry_points.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    with pytest.raises(PluginError, match=r"of broken 1\.0 cannot be loaded"):
        find("defense", "broken")


def test_an_outside_distribution_is_found_by_its_entry_point(
    fresh_entry_points: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = Path(__file__).parents[1] / "plugin_package"
    _distribution(tmp_path, "outside-defense", "outside_shortest = outside_defense:Shortest")
    fresh_entry_points.syspath_prepend(str(tmp_path))
    fresh_entry_points.syspath_prepend(str(package / "src"))
    importlib.invalidate_caches()
    try:
        found = find("defense", "outside_shortest")
        assert found.origin == "outside-defense 1.0"
        assert isinstance(build(found, {"keep": 1}), Defense)
    finally:
        sys.modules.pop("outside_defense", None)


def test_every_registered_plug_in_loads_is_documented_and_offers_its_protocol() -> None:
    protocols = {
        "attack": plugins.Attack, "dataset": plugins.DatasetReader, "defense": plugins.Defense,
        "encoder": plugins.Encoder, "generator": plugins.Generator,
        "retriever": plugins.Retriever, "scorer": plugins.Scorer,
        "system": plugins.System, "tamper": Rule,
    }  # fmt: skip
    for kind in plugins.KINDS:
        for name in plugins.names(kind):
            found = find(kind, name)
            about = describe(found)
            assert about["summary"].endswith("."), f"{kind} {name}: {about['summary']!r}"
            if kind in {"attack", "defense", "tamper"} and name != "none":
                assert about["source"], f"{kind} {name} has no paragraph 'Source:'"
                assert about["deviations"], f"{kind} {name} has no paragraph 'Deviations:'"
            either = (plugins.Scorer, plugins.ModelScorer) if kind == "scorer" else ()
            lacking = [
                [m for m in vars(each) if not m.startswith("_") and not hasattr(found.cls, m)]
                for each in either or (protocols[kind],)
            ]
            assert [] in lacking, f"{kind} {name} lacks {lacking}"
