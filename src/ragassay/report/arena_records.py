"""The records of an arena for the browser of its page: a play, its attackers, its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.canon import digest
from ragassay.report.arena_tables import scene_name
from ragassay.report.grids import UNDEFENDED
from ragassay.report.page import MAX_ENTRIES, Entry, Quote
from ragassay.store import RunFolder
from ragassay.types import ScoreRecord, TrialRecord

MAX_TEXTS = 4_000_000  # characters of all quotes of a page together
_KINDS = {"single": "alone", "round": "round", "order": "order of attack"}
Body = Mapping[str, Any]


def entries(store: RunFolder, summary: Mapping[str, Any]) -> tuple[tuple[Entry, ...], int]:
    """List plays under the headline rule, rounds first, and say how many there are.

    Returns
    -------
    tuple
        As many entries as a page holds, and the number of all plays on all scenes.
    """
    bodies = [body for _, body in store.read("rounds")]
    order = {"round": 0, "single": 1, "order": 2}
    bodies.sort(key=lambda body: (order[body["kind"]], body["index"]))
    browser = _Browser(store, summary)
    systems = {  # triggers and contents are studied without a defense
        scene: (UNDEFENDED, *summary["defenses"]) if ":" not in scene.rpartition("|")[2]
        else (UNDEFENDED,)
        for scene in summary["scenes"]
    }  # fmt: skip
    total = sum(
        len(plays) * len(systems[scene])
        for body in bodies for scene, plays in body["played"].items()
    )  # fmt: skip
    found: list[Entry] = []
    room = MAX_TEXTS
    for body in bodies:
        for scene in (scene for scene in summary["scenes"] if scene in body["played"]):
            for number in range(len(body["assignments"])):
                for defense in systems[scene]:
                    if len(found) >= MAX_ENTRIES or room <= 0:
                        return tuple(found), total
                    entry = browser.entry(body, scene, number, defense)
                    room -= sum(len(quote.text) for quote in entry.quotes)
                    found.append(entry)
    return tuple(found), total


class _Browser:
    """What entries are made from, read once."""

    def __init__(self, store: RunFolder, summary: Mapping[str, Any]) -> None:
        self.summary = summary
        self.scorer = summary["headline"]
        self.trials = {
            (t.spec.query_id, t.spec.setting, t.spec.defense_label, t.spec.poison): t
            for t in store.trials().values()
        }
        self.scores = store.scores()
        self.targets = store.targets()
        self.questions = {key: query.text for key, (query, _) in store.queries().items()}
        self.texts = {key: passage.text for key, passage in store.passages().items()}
        self.owners: dict[str, list[str]] = {}
        for poison in store.poison().values():
            for passage in poison.passages:
                key = "poison-" + digest([poison.query_id, passage.title, passage.text])[:20]
                self.texts[key] = passage.text
                owners = self.owners.setdefault(key, [])
                if poison.attacker not in owners:
                    owners.append(poison.attacker)

    def entry(self, body: Body, scene: str, number: int, defense: str) -> Entry:
        query, played = body["query_id"], body["played"][scene][number]
        dealt = body["assignments"][number]
        setting = scene.rpartition("|")[0].rpartition("|")[0]
        trial = self.trials.get((query, setting, defense, played["context"]))
        won, lines = self._attackers(query, dealt, played, trial)
        tags = {
            "kind": _KINDS[body["kind"]],
            "attackers": str(len(dealt)),
            "winner": " + ".join(won) if won else "nobody",
            "question": query,
        }
        if len(self.summary["scenes"]) > 1:
            tags["scene"] = scene_name(scene)
        if self.summary["defenses"]:
            tags["defense"] = defense
        if body["second"]:
            lines.append(("crafted second", body["second"]))
        return Entry(
            title=f"{_KINDS[body['kind']]} {body['index'] + 1}"
            f"{f', assignment {number + 1}' if len(body['assignments']) > 1 else ''}: "
            f"{self.questions.get(query, query)}",
            tags=tags,
            lines=tuple(lines),
            quotes=self._quotes(query, dealt, trial),
        )

    def _attackers(
        self, query: str, dealt: Body, played: Body, trial: TrialRecord | None
    ) -> tuple[list[str], list[tuple[str, str]]]:
        won, lines = [], []
        for name, position in sorted(dealt.items()):
            score = None if position is None else self._score(trial, position)
            label = None if score is None else score.target_positive
            if label:
                won.append(name)
            wanted = "untargeted" if position is None else self._wanted(query, position)
            said = {True: "won", False: "lost", None: "not judged here"}[label]
            of = f"{played['hits'].get(name, 0)} of {played['injected'].get(name, 0)} documents"
            lines.append((name, f"wants {wanted}: {said}; {of} in the context"))
        if trial is None or trial.status != "done":
            lines.append(("answer", "the trial has not been run" if trial is None else "failed"))
        return won, lines

    def _wanted(self, query: str, position: int) -> str:
        target = self.targets.get(query, {}).get(f"a{position + 1}")
        return target.wanted[0] if target is not None and target.wanted else "?"

    def _score(self, trial: TrialRecord | None, position: int) -> ScoreRecord | None:
        if trial is None:
            return None
        return self.scores.get((f"{trial.key}#a{position + 1}", self.scorer))

    def _quotes(self, query: str, dealt: Body, trial: TrialRecord | None) -> tuple[Quote, ...]:
        if trial is None or trial.status != "done":
            return ()
        marks = [
            (span.start, span.stop, "target")
            for position in dealt.values()
            if position is not None and (score := self._score(trial, position)) is not None
            for span in score.evidence
            if span.label == "target_positive"
        ]
        quotes = [Quote(label="Answer", text=trial.answer or "", marks=_apart(marks))]
        for rank, entry in enumerate(trial.context, start=1):
            key = entry.id.partition("~")[0]
            who = [name for name in self.owners.get(key, ()) if name in dealt]
            origin = " + ".join(who) if who else "poison" if entry.origin != "corpus" else "corpus"
            kept = "" if entry.kept else ", removed by the defense"
            quotes.append(
                Quote(label=f"{rank}. {origin}, score {entry.score:.4g}{kept}",
                      text=self.texts.get(key, "(not in the run folder)"))
            )  # fmt: skip
        return tuple(quotes)


def _apart(marks: Sequence[tuple[int, int, str]]) -> tuple[tuple[int, int, str], ...]:
    """Spans that do not overlap: of two the earlier one, then the longer one."""
    kept: list[tuple[int, int, str]] = []
    for mark in sorted(set(marks), key=lambda mark: (mark[0], -mark[1])):
        if not kept or mark[0] >= kept[-1][1]:
            kept.append(mark)
    return tuple(kept)
