"""Public data sets by name, with a stand-in for the ir_datasets library."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ragassay.data.named import IrDatasets
from ragassay.errors import BackendUnavailable, ConfigError, DataError


class Source:
    """What ``ir_datasets.load`` returns, as far as it is used."""

    def __init__(self, **parts: Any) -> None:
        self.parts = {
            "docs": [
                SimpleNamespace(doc_id="d1", text="Rome.", title="T"),
                SimpleNamespace(doc_id="d2", default_text=lambda: "Oslo."),
            ],
            "queries": [
                SimpleNamespace(query_id="q1", text="Where?", answers=("Rome",)),
                SimpleNamespace(query_id="q2", text="Who?"),
                SimpleNamespace(query_id="q3", text="Why?"),
            ],
            "qrels": [
                SimpleNamespace(query_id="q1", doc_id="d1", relevance=2),
                SimpleNamespace(query_id="q1", doc_id="d2", relevance=0),
            ],
        } | parts

    def __getattr__(self, name: str) -> Any:
        part, _, what = name.partition("_")
        if name.startswith("has_"):
            return lambda: self.parts[what] is not None
        if what == "iter":
            return lambda: self._iterate(part)
        raise AttributeError(name)

    def _iterate(self, part: str) -> Iterator[Any]:
        if isinstance(self.parts[part], Exception):
            raise self.parts[part]
        yield from self.parts[part]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> dict[str, Source]:
    known: dict[str, Source] = {"tiny/test": Source()}
    module = ModuleType("ir_datasets")
    module.load = known.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ir_datasets", module)
    return known


def test_a_named_data_set_is_read(library: dict[str, Source]) -> None:
    data = IrDatasets(name="tiny/test").load()
    assert data.name == "tiny/test"
    assert [(p.id, p.title, p.text) for p in data.corpus] == [
        ("d1", "T", "Rome."),
        ("d2", "", "Oslo."),
    ]
    assert [q.id for q in data.queries] == ["q1", "q2", "q3"]
    assert data.targets["q1"].references == ("Rome",)
    assert data.targets["q1"].gold_ids == ("d1",)
    assert data.has_qrels


def test_the_number_of_other_questions_can_be_limited(
    library: dict[str, Source], tmp_path: Path
) -> None:
    path = tmp_path / "targets.jsonl"
    row = {"query_id": "q3", "query": "Why?", "wanted": ["x"], "texts": ["x"]}
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    data = IrDatasets(name="tiny/test", queries=1, targets=str(path)).load()
    assert [(q.id, q.group) for q in data.queries] == [("q3", "g01"), ("q1", "h01")]
    assert data.drafts == {"q3": ("x",)}


def test_without_relevance_none_is_claimed(library: dict[str, Source]) -> None:
    library["bare"] = Source(qrels=None)
    assert not IrDatasets(name="bare").load().has_qrels


def test_a_failed_download_is_one_line(library: dict[str, Source]) -> None:
    library["far"] = Source(docs=OSError("no route\nto host"))
    with pytest.raises(
        BackendUnavailable, match=r"'far' cannot be read .*no route to host"
    ) as caught:
        IrDatasets(name="far").load()
    assert "\n" not in str(caught.value)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(BackendUnavailable, match=r"pip install 'ragassay\[beir\]'"):
        IrDatasets(name="tiny/test").load()


@pytest.mark.parametrize(
    ("parts", "error", "match"),
    [
        ({"docs": None}, ConfigError, "has no passages"),
        ({"docs": None, "queries": None}, ConfigError, "has no passages and no questions"),
        ({"docs": []}, DataError, "all 0 passages are empty"),
        (
            {"queries": [SimpleNamespace(query_id="q1", text="a")] * 2},
            DataError,
            "question id 'q1' occurs twice",
        ),
        (
            {"qrels": [SimpleNamespace(query_id="q1", doc_id="d9", relevance=1)]},
            DataError,
            "1 relevance rows have unknown ids: query 'q1', passage 'd9'",
        ),
    ],
)
def test_unusable_data_sets_are_refused(
    library: dict[str, Source], parts: dict[str, Any], error: type[Exception], match: str
) -> None:
    library["odd"] = Source(**parts)
    with pytest.raises(error, match=match):
        IrDatasets(name="odd").load()


def test_an_unknown_name_and_wrong_options_are_refused(library: dict[str, Source]) -> None:
    with pytest.raises(ConfigError, match="knows no data set 'tinny'"):
        IrDatasets(name="tinny").load()
    with pytest.raises(ConfigError, match="name is empty"):
        IrDatasets(name="")
    with pytest.raises(ConfigError, match="queries = -1"):
        IrDatasets(name="a", queries=-1)
