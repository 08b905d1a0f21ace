"""What a run will and did cost: bounds of the plan, perplexity on request, opened models."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragassay import canon
from ragassay.config import EvidencePart
from ragassay.data.poison_file import PoisonLine, append_poison, read_poison
from ragassay.errors import PluginError
from ragassay.experiments.aligned_plan import estimate, most_controls
from ragassay.experiments.controls import controls_of, poison_of, subsets_of
from ragassay.experiments.opened_models import OpenedModels
from ragassay.experiments.paraphrases import with_paraphrases
from ragassay.experiments.perplexity import perplexity_of
from ragassay.experiments.runner import run
from ragassay.experiments.setup import Experiment, load_experiment, set_up
from ragassay.experiments.victim import open_encoder
from ragassay.plugins.accelerator import AcceleratorClock, device_name
from ragassay.retrieval.dense import DenseRetriever
from ragassay.store import RunFolder, poison_from
from ragassay.testing.toys import ToyLM
from ragassay.types import ContextEntry, Cost, Generation, Knowledge, Passage, PoisonSet, Request

OPEN = '''
from dataclasses import dataclass
from ragassay.generation.scripted import extract
from ragassay.testing.toys import ToyLM
from ragassay.types import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Reads like a naive model, and can be opened."""

    @property
    def identity(self):
        return "open:1"

    @property
    def gathers(self):
        return False

    def generate(self, requests):
        return [Generation(text=extract(r.messages[-1].content) or "no") for r in requests]

    def white_box(self):
        return ToyLM()
'''
EXPERIMENT = """
name = "small"
budgets = [1, 2]
[dataset]
plugin = "beir"
path = "data"
group_size = 1
[retriever]
encoder = "hashing"
encoder_options = { dimensions = 512 }
k = 3
[generator]
plugin = "open.py:Open"
[scoring]
rules = [{plugin = "tokens"}]
[statistics]
draws = 100
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGASSAY_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    numbers = range(4)
    for name, rows in (
        ("corpus", [{"_id": f"d{n}", "text": f"The harbor of town{n} was built by mason{n}."}
                    for n in numbers]),
        ("queries", [{"_id": f"q{n}", "text": f"Who built the harbor of town{n}?",
                      "metadata": {"correct_answers": [f"mason{n}"]}} for n in numbers]),
        ("targets", [{"query_id": f"q{n}", "query": f"Who built the harbor of town{n}?",
                      "correct_answers": [f"mason{n}"], "incorrect_answers": [f"rival{n}"],
                      "poison_passages": [f"Source {i}: rival{n} built it." for i in range(2)]}
                     for n in numbers]),
    ):  # fmt: skip
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (data / f"{name}.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "open.py").write_text(OPEN, encoding="utf-8")
    (tmp_path / "small.toml").write_text(EXPERIMENT, encoding="utf-8")
    return tmp_path


def load(folder: Path, *settings: str) -> Experiment:
    return load_experiment(folder / "small.toml", settings)


# ------------------------------------------------------------------------------------- the plan


@pytest.mark.parametrize("evidence", ["{}", "{queries = 'all', attribution = 'all'}",
                                      "{queries = 'all', attribution = 'off'}",
                                      "{defenses = 'undefended'}"])  # fmt: skip
def test_a_run_has_no_more_controls_and_calls_than_its_plan_says(
    folder: Path, evidence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load(folder, f"evidence={evidence}", "defense+=keywordagg")
    planned = estimate(set_up(experiment))
    with monkeypatch.context() as patch:
        for name in ("trials", "scores"):  # a run of any size holds no records as values
            patch.setattr(RunFolder, name, None)
        result = run(experiment, out=folder / "run")
    trials = RunFolder(folder / "run").trials().values()
    controls = sum(bool(trial.spec.control) for trial in trials)
    assert 0 < controls <= planned.controls
    assert len(trials) - controls == planned.trials
    assert result.model_calls <= sum(planned.calls.values())
    assert not any("scorer" in purpose for purpose in planned.calls)
    with monkeypatch.context() as patched:
        patched.delattr(RunFolder, "trials")  # a plan does not hold a million records in memory
        assert estimate(set_up(experiment), folder / "run").done == planned.trials


def test_a_plan_without_evidence_asks_the_index_what_is_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load(folder)
    run(experiment, out=folder / "run")
    for reading in ("trials", "columns", "read"):
        monkeypatch.delattr(RunFolder, reading)
    planned = estimate(set_up(experiment), folder / "run")
    assert planned.done == planned.trials


def test_without_evidence_there_are_no_controls(folder: Path) -> None:
    assert estimate(set_up(load(folder))).controls == 0


def test_a_scorer_that_asks_a_model_is_counted_with_its_retries(folder: Path) -> None:
    judged = load(folder, "scoring.rules+={plugin='judge', generator='scripted', retries=2, "
                  "generator_options={script='judge'}}", "evidence={}")  # fmt: skip
    planned = estimate(set_up(judged))
    assert planned.calls["scorer judge"] == 3 * (planned.trials + planned.controls)


def test_evaluated_paraphrases_are_counted_before_they_are_written(folder: Path) -> None:
    (folder / "reword.txt").write_text("@@ user\nReword: {{question}}\n", encoding="utf-8")
    plain = estimate(set_up(load(folder)))
    setup = set_up(load(folder, "paraphrases={prompt='reword.txt', evaluate=true}"))
    planned = estimate(setup)
    assert planned.made_of.startswith("24 questions")
    assert planned.trials == 6 * plain.trials
    expanded = with_paraphrases(setup, Rewording())
    assert estimate(expanded).trials == planned.trials == 6 * plain.trials
    assert len(expanded.evaluated) == 24


class Rewording:
    """Writes a new wording at every draw; refuses a prompt that is not the one of the test."""

    def ask(self, requests: Any) -> list[Generation]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Generation:
        content = request.messages[-1].content
        assert content.startswith("Reword: ")
        return Generation(text=f"{content.removeprefix('Reword: ')} {request.sample_index}")


ORIGINS = st.sampled_from(["own", "foreign", "corpus"])


@given(
    st.lists(st.tuples(ORIGINS, st.booleans()), min_size=1, max_size=7),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)
def test_no_context_has_more_controls_than_the_bound(
    passages: list[tuple[Any, bool]], max_poison: int, attributed: bool, annotated: bool
) -> None:
    entries = [
        ContextEntry(id=f"{i}", score=0.0, origin=origin, gold=gold, kept=True)
        for i, (origin, gold) in enumerate(passages)
    ]
    kept = set(controls_of(entries, annotated=annotated).values())
    if attributed and len(poison_of(entries)) <= max_poison:
        kept |= {each for _, each in subsets_of(entries)}
    distinct = sum(len(each) < len(entries) for each in kept)
    part = EvidencePart(max_poison=max_poison)
    assert distinct <= most_controls(len(entries), part, attributed=attributed)


# ------------------------------------------------------------------------------------ perplexity


ASKED = ("tax.perplexity=true", "language_model.plugin=open.py:Open")


def test_perplexity_is_measured_on_request_only_and_once(folder: Path) -> None:
    plain = run(load(folder), out=folder / "plain")
    facts = plain.summary["tax"]["measured"]["poisonedrag"]
    assert facts["perplexity"] == {"value": None, "n": 0}
    asked = run(load(folder, *ASKED), out=folder / "asked")
    measured = asked.summary["tax"]["measured"]["poisonedrag"]["perplexity"]
    texts = [p.text for each in RunFolder(folder / "asked").poison().values()
             for p in each.passages]  # fmt: skip
    assert measured["n"] == len(texts) == 8
    assert measured["value"] == pytest.approx(float(np.mean(ToyLM().perplexity(texts))))
    recorded = json.loads((folder / "asked" / "attacks.json").read_text(encoding="utf-8"))
    setup = set_up(load(folder, *ASKED))
    assert setup.language_model is not None
    assert recorded["language_model"] == setup.language_model.identity
    models = OpenedModels(setup.language_model, folder / "cache")
    again = perplexity_of(setup, models)
    assert again is not None
    assert np.allclose(again(texts), ToyLM().perplexity(texts))
    assert models.reading().scored == 0, "every text was in the cache"
    assert np.isnan(again(["one"])[0])
    models.close()


def test_runs_without_the_option_keep_their_name(folder: Path) -> None:
    plain = set_up(load(folder))
    assert {"tax", "language_model"}.isdisjoint(plain.resolved()["experiment"])
    asked = set_up(load(folder, *ASKED)).resolved()["experiment"]
    assert asked["tax"] == {"perplexity": True}
    assert asked["language_model"]["plugin"] == "open.py:Open"


def test_a_model_that_cannot_be_opened_is_said_before_anything_runs(folder: Path) -> None:
    experiment = load(folder, "tax.perplexity=true", "language_model.plugin=scripted")
    with pytest.raises(PluginError, match="'scripted' gives no probabilities of tokens"):
        run(experiment, out=folder / "run")
    assert not (folder / "run").exists()


# --------------------------------------------------------------------------------- opened models


def test_the_retriever_opens_the_encoder_that_it_has_loaded(folder: Path) -> None:
    retriever = DenseRetriever(encoder="minilm")
    arm = SimpleNamespace(retriever=SimpleNamespace(instance=retriever), title="dense")
    opened: Any = open_encoder(arm)  # type: ignore[arg-type]
    assert opened._encoder is retriever._encoder
    assert opened.similarity == "cosine"


class Event:
    """A CUDA event on a clock of the test."""

    now = 0.0

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing
        self.at = -1.0

    def record(self) -> None:
        self.at = Event.now

    def synchronize(self) -> None:
        assert self.at >= 0

    def elapsed_time(self, other: Event) -> float:
        return 1000 * (other.at - self.at)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    from contextlib import nullcontext

    fake = SimpleNamespace(cuda=SimpleNamespace(
        Event=Event, device=lambda device: nullcontext(), is_initialized=lambda: True,
        get_device_name=lambda: "a card",
    ))  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", fake)
    Event.now = 0.0
    return SimpleNamespace(type="cuda")


def test_seconds_of_a_device_add_up_and_inner_pieces_count_once(cuda: Any) -> None:
    clock = AcceleratorClock()
    with clock.running(cuda):
        Event.now += 2
        with clock.running(cuda):
            Event.now += 1
    with clock.running(cuda):
        Event.now += 4
    assert clock.seconds == 7
    assert device_name() == "cuda: a card"


def test_a_piece_that_fails_leaves_the_clock_usable(cuda: Any) -> None:
    clock = AcceleratorClock()
    with pytest.raises(ValueError, match="broken"), clock.running(cuda):
        raise ValueError("broken")
    with clock.running(cuda):
        Event.now += 1
    assert clock.seconds == 1


def test_on_a_cpu_no_device_seconds_pass() -> None:
    clock = AcceleratorClock()
    with clock.running(SimpleNamespace(type="cpu")):
        pass
    assert clock.seconds == 0


def test_files_from_before_models_were_counted_apart_still_read(tmp_path: Path) -> None:
    poison = PoisonSet(
        attack="a", attacker="a", query_id="q", wanted=("w",), knowledge=Knowledge(),
        passages=(Passage(id="p", text="text"),), cost=Cost(model_calls=2),
    )  # fmt: skip
    path = tmp_path / "poison.jsonl"
    append_poison(path, PoisonLine(key="k", question="who?", asked=1, poison=poison))
    row = json.loads(path.read_text(encoding="utf-8"))
    assert row["cost"]["model_backwards"] == 0
    for name in ("model_forwards", "model_backwards"):
        del row["cost"][name]
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert read_poison(path)[0].poison.cost == poison.cost
    body = canon.to_plain(poison)
    for name in ("model_forwards", "model_backwards"):
        del body["cost"][name]
    assert poison_from(body).cost == poison.cost
