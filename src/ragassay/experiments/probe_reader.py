"""The reader of the split-knowledge probe: four answers for each candidate, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ragassay.experiments.probe_candidates import Candidate
from ragassay.experiments.probe_text import mentions
from ragassay.plugins import Ask, Scorer
from ragassay.prompts import Template
from ragassay.types import Generation, Message, Request, Sampling, Target

CONTEXTS = ("none", "a", "b", "ab")
_TOKENS = "tokens"  # the rule of whole tokens, which always labels
_VERDICTS = {
    "none": "the reader gives the target without any passage",
    "a": "the reader gives the target from A alone",
    "b": "the reader gives the target from B alone",
    "ab": "the reader does not give the target from A and B",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A candidate with the reader's answers and their labels.

    Attributes
    ----------
    answers : mapping of str to str or None
        The raw answer from each of :data:`CONTEXTS`; None where the reader failed.
    labels : mapping of str to mapping
        For each context, whether the answer gives the target by each rule; None where a rule
        could not say.
    reason : str
        Why it was rejected; empty if accepted.
    """

    candidate: Candidate
    answers: Mapping[str, str | None]
    labels: Mapping[str, Mapping[str, bool | None]] = field(default_factory=dict)
    reason: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the target comes from A and B together, and from nothing less."""
        return not self.reason


def verify(
    candidates: Sequence[Candidate],
    ask: Ask,
    template: Template,
    sampling: Sampling,
    *,
    titles: bool = False,
    scorer: Scorer | None = None,
) -> list[Verified]:
    """Let a reader answer every candidate from nothing, from A, from B, and from A and B.

    Parameters
    ----------
    candidates : sequence of Candidate
        From :func:`find_candidates`.
    ask : callable
        Asks the reader; called once with all requests, four for each candidate.
    template : Template
        The victim's prompt, with the slots ``contexts`` and ``question``.
    sampling : Sampling
        The reader's decoding.
    titles : bool
        Whether the prompt shows the title of A; B, as an injected passage, has none.
    scorer : Scorer, optional
        A further rule that labels the answers.

    Returns
    -------
    list of Verified
        In order. Accepted are those whose target is given from A and B and from no other
        context by whole tokens and, where there is one, by the scorer; a rule that cannot
        decide, or a reader that failed, accepts nothing.
    """
    requests = [
        Request(messages=messages, sampling=sampling)
        for candidate in candidates
        for messages in _prompts(candidate, template, titles=titles)
    ]
    outcomes = iter(ask(requests))
    verified = []
    for candidate in candidates:
        answers: dict[str, str | None] = {}
        for context in CONTEXTS:
            outcome = next(outcomes)
            answers[context] = outcome.text if isinstance(outcome, Generation) else None
        labels = {c: _labels(candidate, c, answers[c], scorer) for c in CONTEXTS}
        verified.append(
            Verified(candidate=candidate, answers=answers, labels=labels, reason=_reason(labels))
        )
    return verified


# -------------------------------------------------------------------------- the four answers


def _prompts(
    candidate: Candidate, template: Template, *, titles: bool
) -> Iterator[tuple[Message, ...]]:
    first = candidate.first
    a = f"{first.title}\n{first.text}" if titles and first.title else first.text
    contexts: dict[str, list[str]] = {
        "none": [],
        "a": [a],
        "b": [candidate.text],
        "ab": [a, candidate.text],
    }
    for context in CONTEXTS:
        values = {"contexts": "\n".join(contexts[context]), "question": candidate.query.text}
        yield template.render(values)


def _labels(
    candidate: Candidate, context: str, answer: str | None, scorer: Scorer | None
) -> dict[str, bool | None]:
    if answer is None:
        return {}
    labels: dict[str, bool | None] = {_TOKENS: mentions(answer, candidate.wanted)}
    if scorer is not None:
        record = scorer.score(
            trial_key=f"{candidate.query.id}:{context}",
            query=candidate.query,
            target=Target(
                query_id=candidate.query.id,
                references=candidate.references,
                wanted=candidate.wanted,
            ),
            answer=answer,
            declined=False,
        )
        labels[record.scorer] = record.target_positive
    return labels


def _reason(labels: Mapping[str, Mapping[str, bool | None]]) -> str:
    """Say why the answers do not accept a candidate; empty if they do."""
    if not all(labels.values()):
        return "the reader failed to answer"
    for context in CONTEXTS:
        found = labels[context].values()
        if None in found:
            return "a rule could not decide about an answer"
        if any(found) if context != "ab" else not all(found):
            return _VERDICTS[context]
    return ""
