"""The model that scores texts, its cache, and what defenses may ask of opened models."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragassay.errors import Interrupted, PluginError, StoreError
from ragassay.experiments.context import expanded, expansion
from ragassay.experiments.opened_models import OpenedModels, counted, with_language_model
from ragassay.experiments.reading_model import ReadingModel, token_losses
from ragassay.experiments.setup import Arm, Named
from ragassay.plugins.access import WhiteBoxLM
from ragassay.testing.toys import ToyLM
from ragassay.types import Message, ToolUsage

TEXTS = ["ba be bi", "", "bo", "da de di do du", "ba be bi"]


class Opener:
    """Counts how often the model is loaded."""

    def __init__(self) -> None:
        self.opened = 0
        self.model = ToyLM()

    def __call__(self) -> WhiteBoxLM:
        self.opened += 1
        return self.model


@pytest.fixture
def opener() -> Opener:
    return Opener()


@pytest.fixture
def reading(opener: Opener, tmp_path: Path) -> Iterator[ReadingModel]:
    model = ReadingModel("toy", opener, tmp_path / "new" / "losses.sqlite")
    yield model
    model.close()


def named(instance: Any, title: str = "it", identity: str = "id") -> Named:
    return Named(title=title, plugin=title, identity=identity, instance=instance, options={})


class Open:
    identity = "open"
    gathers = False

    def __init__(self) -> None:
        self.opened = 0

    def generate(self, requests: Any) -> Any:
        return []

    def white_box(self) -> WhiteBoxLM:
        self.opened += 1
        return ToyLM()


def test_losses_are_those_of_every_token_but_the_first(reading: ReadingModel) -> None:
    found = reading.token_nll(TEXTS)
    assert [len(each) for each in found] == [2, 0, 0, 4, 2]
    toy = ToyLM()
    ids = toy.tokenize(TEXTS[3])
    assert found[3] == pytest.approx(-toy.logprob(ids[:1], ids[1:]))
    assert found[3].dtype == np.float64
    assert np.exp(found[3].mean()) == pytest.approx(toy.perplexity([TEXTS[3]])[0])


def test_no_text_is_scored_twice_neither_now_nor_later(
    reading: ReadingModel, opener: Opener
) -> None:
    first = reading.token_nll(TEXTS)
    assert (reading.scored, opener.opened) == (4, 1)
    again = Opener()
    later = ReadingModel("toy", again, reading._store._file.path)
    assert all(np.array_equal(a, b) for a, b in zip(first, later.token_nll(TEXTS), strict=True))
    assert (later.scored, again.opened) == (0, 0)
    other = ReadingModel("another model", again, reading._store._file.path)
    other.token_nll(TEXTS[:1])
    assert other.scored == 1
    later.close()
    other.close()


def test_a_score_does_not_depend_on_what_else_is_asked(
    reading: ReadingModel, tmp_path: Path
) -> None:
    together = reading.token_nll(TEXTS)
    alone = ReadingModel("toy", Opener(), tmp_path / "other.sqlite")
    for text, losses in zip(TEXTS, together, strict=True):
        assert alone.token_nll([text])[0].tobytes() == losses.tobytes()
    alone.close()


def test_many_threads_score_each_text_once(reading: ReadingModel) -> None:
    texts = [f"ba be bi {word}" for word in ("da", "de", "di", "do", "du", "fa", "fe", "fi")]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: reading.token_nll(texts[n % 3 :]), range(24)))
    assert reading.scored == len(texts)
    for n, found in enumerate(results):
        assert [each.tobytes() for each in found] == [
            each.tobytes() for each in reading.token_nll(texts[n % 3 :])
        ]


def test_long_texts_are_read_in_windows_that_overlap_by_half() -> None:
    class Narrow(ToyLM):
        window = 8

        def __init__(self) -> None:
            super().__init__()
            self.read: list[tuple[int, int]] = []

        def logprob(self, prefix_ids: Any, continuation_ids: Any) -> Any:
            self.read.append((len(prefix_ids), len(continuation_ids)))
            return super().logprob(prefix_ids, continuation_ids)

    toy, ids = Narrow(), tuple(range(17))
    losses = token_losses(toy, ids)
    assert toy.read == [(1, 7), (4, 4), (4, 4), (4, 1)]
    assert len(losses) == 16
    assert losses[7:11] == pytest.approx(-ToyLM().logprob(ids[4:8], ids[8:12]))


def test_halves_are_cut_at_the_middle_token(reading: ReadingModel) -> None:
    assert reading.halves(["ba be bi", "ba be", ""]) == [("ba be", "bi"), ("ba", "be"), ("", "")]


def test_what_was_scored_before_a_stop_is_kept(reading: ReadingModel) -> None:
    left = iter([None, None])

    def check() -> None:
        if next(left, "stop"):
            raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        reading.token_nll(["ba be", "bi bo", "da de"], check)
    assert reading.scored == 2
    reading.token_nll(["ba be", "bi bo", "da de"])
    assert reading.scored == 3


@pytest.mark.parametrize("foreign", ["table", "version", "text"])
def test_a_file_that_is_something_else_is_left_alone(tmp_path: Path, foreign: str) -> None:
    path = tmp_path / "losses.sqlite"
    if foreign == "text":
        path.write_text("not a database, but a text of some length" * 40, encoding="utf-8")
    else:
        db = sqlite3.connect(path)
        if foreign == "table":
            db.execute("CREATE TABLE mine (a)")
        else:
            db.execute("PRAGMA user_version = 9")
        db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"losses\.sqlite"):
        ReadingModel("toy", Opener(), path)
    assert path.read_bytes() == before


def test_the_model_becomes_part_of_the_identity_of_those_that_read_with_it() -> None:
    class Reads:
        reads_language_model = True

    parts = [named(object(), identity="a"), named(Reads(), identity="b")]
    (plain, one), model = with_language_model(parts, lambda: named(Open(), identity="m1"))
    (_, two), _ = with_language_model(parts, lambda: named(Open(), identity="m2"))
    assert plain is parts[0]
    assert model is not None
    assert one.identity.startswith("b:")
    assert one.identity != two.identity
    built: list[int] = []
    assert with_language_model(parts[:1], lambda: built.append(1)) == ((parts[0],), None)  # type: ignore[arg-type, func-returns-value]
    assert not built
    with pytest.raises(PluginError, match="'shut' gives no probabilities"):
        with_language_model(parts, lambda: named(object(), "shut"))


def test_models_are_opened_once_and_shared(tmp_path: Path) -> None:
    generator = Open()
    part = named(generator, identity="same")
    models = OpenedModels(part, tmp_path)
    assert models.victim(part) is models.victim(part)
    models.reading().token_nll(["ba be"])
    assert models.reading() is models.reading()
    assert generator.opened == 1
    models.close()
    with pytest.raises(PluginError, match=r"generator 'server' .* the victim's probabilities"):
        models.victim(named(object(), "server"))
    with pytest.raises(PluginError, match="reads_language_model = True"):
        OpenedModels(None, tmp_path).reading()


def test_what_a_trial_asks_of_an_opened_model_is_counted() -> None:
    usage = [0, 0, 0]
    stopped = threading.Event()

    def count(*numbers: int) -> None:
        usage[:] = [a + b for a, b in zip(usage, numbers, strict=True)]

    def check() -> None:
        if stopped.is_set():
            raise Interrupted("stopped")

    model = counted(ToyLM(), count, check)
    assert model.vocabulary == 51
    assert isinstance(model, WhiteBoxLM)
    with model.branches([(50, 1), (50, 1, 2)]) as branches:
        assert branches.logits.shape == (2, 51)
        assert branches.stop == {50}
        branches.append(3)
    assert usage == [2, 5, 2]
    model.next_logits([(50, 1)])
    model.logprob((50,), (1, 2))
    assert usage == [4, 10, 2]
    model.losses([(50, 1, 2)], slice(1, 2))
    model.loss_gradient((50, 1, 2), [1], slice(2, 3))
    model.perplexity(["ba be"])
    assert usage == [7, 18, 2]
    text = model.generate([Message(role="user", content="ba")], 2)
    assert usage[:2] == [8, 20]
    assert usage[2] == 2 + len(text.split())
    stopped.set()
    with pytest.raises(Interrupted):
        model.next_logits([(50,)])


def test_an_old_record_has_no_scored_texts() -> None:
    assert ToolUsage(model_calls=1).scored_texts == 0


def test_a_defense_may_ask_for_more_passages() -> None:
    class Wide:
        expand = 5

    arm = Arm(retriever=named(object()), k=10)
    assert expansion(object()) == 1
    assert expanded(arm, expansion(Wide())).k == 50
    assert expanded(arm, 100).k == 200
    for wrong in (0, True, 1.5, "2"):
        Wide.expand = wrong  # type: ignore[assignment]
        with pytest.raises(PluginError, match="whole number from 1"):
            expansion(Wide())
