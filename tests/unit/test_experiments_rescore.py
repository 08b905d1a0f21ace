"""Scoring run folders again: what is labeled, what is left alone, and what a fault leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragassay import canon
from ragassay.config import Part, scorer_parts
from ragassay.errors import ConfigError, PluginError, StoreError, TooManyFailures
from ragassay.experiments import labeling
from ragassay.experiments.rescore import RescoreResult, plan_scoring, score_folder
from ragassay.experiments.spending import Prices, remote_host
from ragassay.store import RunFolder
from ragassay.types import Query, Sampling, ScoreRecord, Target, TrialRecord, TrialSpec

RULES = '''
import json, os
from dataclasses import dataclass
from pathlib import Path
from ragassay.errors import BackendError, BackendUnavailable
from ragassay.generation.scripted_judge import judge
from ragassay.types import Generation, ScoreRecord


def note(text):
    with open(os.environ["RULES_LOG"], "a", encoding="utf-8") as file:
        file.write(json.dumps(text) + "\\n")


@dataclass(frozen=True, kw_only=True)
class Word:
    """Is the word in the answer?"""

    word: str = "Highport"
    dies_at: str = ""

    @property
    def identity(self):
        return "word:" + self.word

    def score(self, *, trial_key, query, target, answer, declined):
        note(answer)
        if self.dies_at and self.dies_at in answer:
            raise KeyboardInterrupt
        return ScoreRecord(trial_key=trial_key, scorer="word", version="1",
                           target_positive=self.word in answer, correct=None, abstained=declined)


@dataclass(frozen=True, kw_only=True)
class Flaky:
    """A model that fails while there is a file of that name."""

    gathers: bool = False
    host: str = ""

    @property
    def identity(self):
        return "flaky"

    def generate(self, requests):
        return [self._one(request) for request in requests]

    def _one(self, request):
        prompt = request.messages[-1].content
        note("asked")
        sick = Path(os.environ["RULES_LOG"] + ".sick")
        if sick.exists():
            what = sick.read_text(encoding="utf-8")
            if what == "all":
                return BackendUnavailable("the server is not there")
            if what in prompt:
                return BackendError("HTTP 500")
        text = "no JSON" if "garbled" in prompt else judge(prompt)
        return Generation(text=text, finish="stop", input_tokens=100, output_tokens=10)


@dataclass(frozen=True, kw_only=True)
class NoScorer:
    identity: str = "x"
'''
JUDGE = Path(labeling.__file__).parents[1] / "scoring" / "judge.py"
QUESTIONS = {
    "q1": ("Which harbor?", ("Lowport",), ("Highport",)),
    "q2": ("Which harbor?", ("Lowport",), ("Highport",)),  # the same one again
    "q3": ("Which hill?", ("Beacon",), ()),
}
ANSWERS = [
    ("t0", "q1", "Highport"), ("t1", "q1", "Lowport"), ("t2", "q1", "Highport"),
    ("t3", "q2", "Highport"), ("t4", "q3", "Beacon"), ("t5", "q3", "I don't know"),
]  # fmt: skip


class Box:
    """A run folder with six answers, and the rules that label it."""

    def __init__(self, path: Path) -> None:
        self.path = path / "run"
        self.log = path / "log"
        self.sick = path / "log.sick"
        (path / "rules.py").write_text(RULES, encoding="utf-8")
        self.rules = str(path / "rules.py")
        self.store = RunFolder(self.path)
        with self.store.writer():
            self._write()

    def _write(self) -> None:
        resolved = {
            "v": 1, "protocol": "aligned/1", "scorers": {"tokens": "tokens:1"},
            "headline": "tokens", "defenses": {"none": "none:1"}, "dataset": {"name": "small"},
            "experiment": {"name": "small", "seed": 1, "retriever": {"k": 5},
                           "statistics": {"draws": 100, "confidence": 0.95}},
        }  # fmt: skip
        self.store.write_text("resolved.json", canon.dumps(resolved))
        self.store.append_many("queries", [
            (key, {"query": Query(id=key, text=text, group=key),
                   "target": Target(query_id=key, references=references, wanted=wanted)})
            for key, (text, references, wanted) in QUESTIONS.items()
        ])  # fmt: skip
        for key, query, answer in ANSWERS:
            self.store.append("trials", key, trial(key, query, answer))

    def score(self, *names: str, options: Sequence[str] = (), **more: Any) -> RescoreResult:
        return score_folder(self.path, self.parts(*names, options=options), **more)

    def parts(self, *names: str, options: Sequence[str] = ()) -> tuple[Part, ...]:
        files = {"word": f"word={self.rules}:Word", "judge": f"judge={JUDGE}:Judge"}
        model = [f"judge.generator={self.rules}:Flaky"] if "judge" in names else []
        return scorer_parts([files.get(name, name) for name in names], [*model, *options])

    def asked(self) -> list[str]:
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def labels(self, scorer: str) -> dict[str, ScoreRecord]:
        return {key: r for (key, name), r in self.store.scores().items() if name == scorer}

    def notes(self) -> list[dict[str, Any]]:
        path = self.path / "provenance" / "scoring.json"
        return list(json.loads(path.read_text(encoding="utf-8"))["scorings"])


def trial(key: str, query: str, answer: str | None, status: Any = "done", **more: Any) -> Any:
    spec = TrialSpec(
        protocol="aligned/1", dataset="d", query_id=query, question="", attack="", budget=0,
        poison="", retriever="", defense="", defense_label="none", prompt="", generator="",
        sampling=Sampling(), seed=1,
    )  # fmt: skip
    return TrialRecord(key=key, spec=spec, status=status, answer=answer, **more)


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Box:
    monkeypatch.setenv("RULES_LOG", str(tmp_path / "log"))
    (tmp_path / "log").touch()
    return Box(tmp_path)


# -------------------------------------------------------------------------- what is labeled


def test_every_answer_gets_a_label_and_equal_answers_to_a_query_are_read_once(box: Box) -> None:
    result = box.score("word")
    assert (result.scorers[0].answers, result.scorers[0].distinct) == (6, 5)
    assert sorted(box.asked()) == sorted(["Highport", "Lowport", "Highport", "Beacon",
                                          "I don't know"])  # fmt: skip
    labels = box.labels("word")
    assert {key: record.target_positive for key, record in labels.items()} == {
        "t0": True, "t1": False, "t2": True, "t3": True, "t4": False, "t5": False
    }  # fmt: skip
    assert labels["t2"].provenance["identity"] == "word:Highport"
    resolved = box.store.read_json("resolved.json")
    assert resolved["scorers"] == {"tokens": "tokens:1", "word": "word:Highport"}
    assert resolved["headline"] == "tokens"


def test_the_second_call_reads_and_writes_nothing(box: Box) -> None:
    box.score("word", "tokens")
    before = (box.path / "scores.jsonl").read_bytes(), (box.path / "resolved.json").read_bytes()
    again = box.score("word", "tokens")
    assert [(each.answers, each.kept) for each in again.scorers] == [(0, 6), (0, 6)]
    after = (box.path / "scores.jsonl").read_bytes(), (box.path / "resolved.json").read_bytes()
    assert after == before


def test_a_new_trial_is_labeled_and_the_others_are_left_alone(box: Box) -> None:
    box.score("word")
    with box.store.writer():
        box.store.append("trials", "t9", trial("t9", "q1", "Highport"))
        box.store.append("trials", "bad", trial("bad", "q1", None, "failed"))
        box.store.append("trials", "odd", trial("odd", "another data set", "Highport"))
    assert box.score("word").scorers[0].answers == 1
    assert set(box.labels("word")) == {key for key, _, _ in ANSWERS} | {"t9"}


def test_a_declined_answer_differs_from_an_empty_one(box: Box) -> None:
    with box.store.writer():
        box.store.append("trials", "t8", trial("t8", "q1", ""))
        box.store.append("trials", "t9", trial("t9", "q1", "", declined=True))
    box.score("word")
    assert box.labels("word")["t8"].abstained is False
    assert box.labels("word")["t9"].abstained is True


def test_labels_without_identity_belong_to_the_scorer_that_the_folder_names(box: Box) -> None:
    old = ScoreRecord(trial_key="t0", scorer="tokens", version="1", target_positive=True,
                      correct=False, abstained=False)  # fmt: skip
    with box.store.writer():
        box.store.append("scores", "t0", old)
    assert box.score("tokens").scorers[0].answers == 5
    assert box.labels("tokens")["t0"] == old


def test_another_identity_under_the_same_title_labels_everything_again(box: Box) -> None:
    box.score("word")
    result = box.score("word", options=["word.word=Lowport"])
    assert result.scorers[0].answers == 6
    labels = box.labels("word")
    assert labels["t0"].target_positive is False
    assert labels["t1"].target_positive is True
    assert {record.provenance["identity"] for record in labels.values()} == {"word:Lowport"}
    resolved = box.store.read_json("resolved.json")
    assert resolved["scorers"]["word"] == "word:Lowport"
    assert resolved[labeling.BEFORE]["scorers"] == {"tokens": "tokens:1"}


def test_a_change_of_identity_that_is_cut_short_never_mixes_two_scorers(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labeling, "BATCH", 1)
    box.score("word")
    with pytest.raises(KeyboardInterrupt):
        box.score("word", options=["word.word=Lowport", "word.dies_at=Beacon"])
    half = box.labels("word")
    assert {record.provenance["identity"] for record in half.values()} == {"word:Lowport"}
    assert half["t1"].target_positive is True
    assert half["t4"].target_positive is None
    assert half["t4"].uncertain == ()
    result = box.score("word", options=["word.word=Lowport"])
    assert result.scorers[0].answers == 2
    assert all(record.target_positive is not None for record in box.labels("word").values())


@pytest.mark.parametrize("fault", ["register", "append"])
def test_a_kill_while_old_labels_are_withdrawn_leaves_nothing_mixed(
    box: Box, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    box.score("word")
    with monkeypatch.context() as patch:
        patch.setattr(labeling, "BATCH", 2)
        if fault == "register":
            patch.setattr(labeling.Labels, "register", _die)
        else:
            patch.setattr(RunFolder, "append_many", _dying_after(2, RunFolder.append_many))
        with pytest.raises(MemoryError):
            box.score("word", options=["word.word=Lowport"])
    box.score("word", options=["word.word=Lowport"])
    labels = box.labels("word")
    assert [labels[key].target_positive for key in ("t0", "t1", "t4")] == [False, True, False]
    assert {record.provenance["identity"] for record in labels.values()} == {"word:Lowport"}


def test_going_back_to_the_first_scorer_after_a_cut_change_is_right_too(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.score("word")
    with monkeypatch.context() as patch:
        patch.setattr(labeling, "BATCH", 2)
        patch.setattr(RunFolder, "append_many", _dying_after(2, RunFolder.append_many))
        with pytest.raises(MemoryError):
            box.score("word", options=["word.word=Lowport"])
    box.score("word")
    labels = box.labels("word")
    assert [labels[key].target_positive for key in ("t0", "t1", "t4")] == [True, False, False]


def _die(*_: Any, **__: Any) -> None:
    raise MemoryError


def _dying_after(calls: int, real: Callable[..., None]) -> Callable[..., None]:
    left = iter(range(calls))

    def append_many(*arguments: Any) -> None:
        if next(left, None) is None:
            raise MemoryError
        real(*arguments)

    return append_many


def test_a_torn_last_label_is_cut_off_and_given_again(box: Box) -> None:
    box.score("word")
    path = box.path / "scores.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert box.score("word").scorers[0].answers == 1
    assert len(box.labels("word")) == 6


# ------------------------------------------------------------------------------- the judge


def test_the_judge_asks_about_each_distinct_content_once_over_all_queries(box: Box) -> None:
    (done,) = box.score("judge").scorers
    assert (done.answers, done.distinct, done.calls, done.cached) == (6, 4, 4, 0)
    assert (done.input_tokens, done.output_tokens) == (400, 40)
    assert len(box.asked()) == 4
    labels = box.labels("judge")
    assert [labels[f"t{n}"].target_positive for n in range(6)] == [
        True, False, True, True, None, None
    ]  # fmt: skip
    assert labels["t4"].uncertain == ()
    assert labels["t5"].abstained is True
    assert labels["t3"].provenance["model"] == "flaky"


def test_what_was_judged_once_comes_from_the_cache(box: Box) -> None:
    box.score("judge")
    (box.path / "scores.jsonl").unlink()
    (done,) = box.score("judge").scorers
    assert (done.answers, done.calls, done.cached) == (6, 0, 4)
    assert len(box.asked()) == 4


def test_a_dead_server_loses_nothing_and_the_same_call_goes_on(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labeling, "MODEL_BATCH", 1)
    box.sick.write_text("Which hill", encoding="utf-8")
    with pytest.raises(TooManyFailures, match=r"2 answers are not labeled.*HTTP 500.*4 were lab"):
        box.score("judge")
    assert TooManyFailures.exit_code == 5
    assert set(box.labels("judge")) == {"t0", "t1", "t2", "t3"}
    box.sick.write_text("all", encoding="utf-8")
    with pytest.raises(TooManyFailures, match="the server is not there"):
        box.score("judge")
    box.sick.unlink()
    (done,) = box.score("judge").scorers
    assert (done.answers, done.kept, done.calls) == (2, 4, 2)
    assert len(box.labels("judge")) == 6
    assert [note["unanswered"] for note in box.notes()] == [2, 2, 0]


def test_a_server_that_is_not_there_is_not_asked_about_every_answer(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labeling, "MODEL_BATCH", 1)
    with box.store.writer():
        for n in range(100):
            box.store.append("trials", f"u{n}", trial(f"u{n}", "q1", f"Answer {n}"))
    box.sick.write_text("all", encoding="utf-8")
    with pytest.raises(TooManyFailures, match="106 answers are not labeled"):
        box.score("judge", workers=1)
    assert len(box.asked()) == 1


def test_failures_in_a_row_end_the_asking(box: Box) -> None:
    with box.store.writer():
        for n in range(100):
            box.store.append("trials", f"u{n}", trial(f"u{n}", "q1", f"Answer {n}"))
    box.sick.write_text("Which", encoding="utf-8")
    with pytest.raises(TooManyFailures, match="HTTP 500"):
        box.score("judge", workers=1)
    assert len(box.asked()) == 10


def test_unusable_replies_leave_an_answer_unscored_and_are_not_a_failure(box: Box) -> None:
    with box.store.writer():
        box.store.append("trials", "t9", trial("t9", "q1", "garbled Highport"))
    (done,) = box.score("judge", options=["judge.retries=1"]).scorers
    assert (done.answers, done.not_scored, done.unanswered, done.calls) == (7, 1, 0, 6)
    record = box.labels("judge")["t9"]
    assert (record.target_positive, record.correct, record.abstained) == (None, None, None)
    assert record.provenance["reason"] == "the reply is not one JSON object"
    assert box.score("judge", options=["judge.retries=1"]).scorers[0].answers == 0


def test_string_rules_and_the_judge_go_together_and_a_dead_judge_does_not_stop_them(
    box: Box,
) -> None:
    box.sick.write_text("all", encoding="utf-8")
    with pytest.raises(TooManyFailures):
        box.score("judge", "word", "tokens")
    assert len(box.labels("word")) == len(box.labels("tokens")) == 6
    assert box.labels("judge") == {}
    assert set(box.store.read_json("resolved.json")["scorers"]) == {"judge", "word", "tokens"}


# ---------------------------------------------------------------------------- plan and cost


def test_a_plan_counts_what_would_be_asked_and_asks_nothing(box: Box) -> None:
    judge, word = plan_scoring(box.path, box.parts("judge", "word"))
    assert (judge.answers, judge.distinct, judge.calls, judge.cached) == (6, 4, 4, 0)
    assert judge.output_tokens == 4 * 512
    assert judge.input_tokens > 4 * 500
    assert not judge.counted
    assert (word.answers, word.calls, word.input_tokens) == (6, 0, 0)
    assert box.asked() == []
    assert not (box.path / "scores.jsonl").exists()
    box.score("judge")
    (box.path / "scores.jsonl").unlink()
    (judge,) = plan_scoring(box.path, box.parts("judge"))
    assert (judge.calls, judge.cached, judge.input_tokens) == (0, 4, 0)


def test_only_scorers_that_send_answers_away_are_remote(box: Box) -> None:
    here = box.parts("judge", "word")
    assert plan_scoring(box.path, here, remote_only=True) == []
    away = box.parts("judge", options=["judge.generator_options.host=judge.example.org:443"])
    (estimate,) = plan_scoring(box.path, away, remote_only=True)
    assert estimate.remote == "judge.example.org"


@pytest.mark.parametrize(
    ("host", "remote"),
    [
        ("localhost:8000", ""), ("127.0.0.1", ""), ("127.8.8.8:1", ""), ("[::1]:8000", ""),
        ("a.localhost", ""), ("", ""), ("10.0.0.5:8000", "10.0.0.5"),
        ("localhost.example.org", "localhost.example.org"),
        ("127.0.0.1.example", "127.0.0.1.example"),
    ],
)  # fmt: skip
def test_this_machine_is_told_from_others(host: str, remote: str) -> None:
    class Backend:
        pass

    backend: Any = Backend()
    backend.host = host
    assert remote_host(backend) == remote


def test_what_was_spent_is_noted_with_its_price(box: Box) -> None:
    box.score("judge", prices=Prices(input=1.0, output=10.0))
    box.score("word")
    first, second = box.notes()
    assert first["cost"] == pytest.approx((400 * 1 + 40 * 10) / 1e6)
    assert (first["title"], first["calls"], first["not_scored"]) == ("judge", 4, 0)
    assert second["title"] == "word"
    assert "cost" not in second
    with pytest.raises(ConfigError, match="0 or more"):
        Prices(input=-1.0, output=0.0)


# --------------------------------------------------------------------------------- faults


def test_the_headline_is_kept_or_set_and_must_be_there(box: Box) -> None:
    box.score("word", headline="word")
    assert box.store.read_json("resolved.json")["headline"] == "word"
    box.score("tokens")
    assert box.store.read_json("resolved.json")["headline"] == "word"
    with pytest.raises(ConfigError, match="'nobody' is no scorer of this folder"):
        box.score("word", headline="nobody")


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        ([], [], "name at least one scorer"),
        (["word", "word"], [], "two are called 'word'"),
        (["=x"], [], "expected NAME or TITLE=NAME"),
        (["word"], ["tokens.x=1"], "expected SCORER.OPTION=VALUE with one of word"),
        (["word"], ["word=1"], "expected SCORER.OPTION=VALUE"),
        (["word"], ["word.size=3"], "has no option 'size'"),
        (["tokenz"], [], "did you mean 'tokens'"),
    ],
)
def test_a_wrong_scorer_is_one_line(
    box: Box, names: list[str], options: list[str], message: str
) -> None:
    with pytest.raises((ConfigError, PluginError), match=message) as caught:
        box.score(*names, options=options)
    assert "\n" not in str(caught.value)


def test_a_class_that_offers_neither_way_to_score_is_refused(box: Box) -> None:
    with pytest.raises(PluginError, match=r"\(identity, score\) or \(backend, identity"):
        score_folder(box.path, [f"{box.rules}:NoScorer"])


def test_two_parts_with_one_title_are_refused(box: Box) -> None:
    with pytest.raises(ConfigError, match="two scorers are called 'tokens'"):
        score_folder(box.path, ["tokens", Part(plugin="published", label="tokens")])


def test_a_folder_that_is_no_run_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is it a run folder"):
        score_folder(tmp_path / "nowhere", ["tokens"])
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_in_use_is_refused(box: Box) -> None:
    with box.store.writer(), pytest.raises(StoreError, match="in use"):
        box.score("word")
