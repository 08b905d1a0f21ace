"""The view that the contract suite gives an attack: all that was declared, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from ragassay.testing.scene import AttackScene
from ragassay.testing.scripted import Replies, make_hits
from ragassay.testing.toys import ToyEncoder, ToyLM
from ragassay.types import Knowledge

_PARAPHRASES = (
    "Which city is the capital of Canada?",
    "Canada has which capital?",
    "What city is Canada's capital?",
    "Name the capital of Canada.",
    "The capital of Canada is which city?",
)
_CORPUS = (
    "Ottawa is the capital of Canada.",
    "The parliament of Canada sits in Ottawa, on the river of the same name.",
    "Canada has ten provinces and three territories.",
    "Toronto is the largest city of Canada and lies on Lake Ontario.",
    "Maple syrup is boiled from the sap of several kinds of maple.",
)


class StrictView(AttackScene):
    """An attacker's view that refuses, and records, everything that is not declared.

    What is declared is there: toys stand in for the encoder and the language model, five
    passages for the corpus, five paraphrases, and a victim that repeats the last passage put to
    it.

    Parameters
    ----------
    knowledge : Knowledge
        What the attack declares.
    question : str
        The exact question.
    correct_answers, drafts : tuple of str
        What the data set holds.
    replies : callable, mapping or str
        The attacker's own language model; see :data:`Replies`.
    budget : int
        Passages asked for.
    max_words : int, optional
        Most words of a passage.

    Attributes
    ----------
    refused : list of str
        What was reached for without being declared.
    asked : int
        Prompts put to the language model.
    victim_asked : int
        Times the victim was asked.

    Examples
    --------
    >>> view = StrictView(Knowledge(retriever="query"))
    >>> view.similarity(["Toronto"]).shape, view.budget
    ((1,), 5)
    >>> view.encoder
    Traceback (most recent call last):
    ragassay.errors.KnowledgeError: the attack reads encoder without declaring retriever="gradients"
    >>> view.refused
    ['encoder']
    """

    def __init__(
        self,
        knowledge: Knowledge,
        *,
        question: str = "What is the capital of Canada?",
        correct_answers: tuple[str, ...] = ("Ottawa",),
        drafts: tuple[str, ...] = (),
        replies: Replies = "The capital of Canada is Toronto.",
        budget: int = 5,
        max_words: int | None = None,
    ) -> None:
        super().__init__(
            knowledge,
            question=question,
            paraphrases=_PARAPHRASES,
            correct_answers=correct_answers,
            drafts=drafts,
            budget=budget,
            max_words=max_words,
            replies=replies,
            encoder=ToyEncoder(special=True),
            language_model=ToyLM(),
            hits=make_hits(_CORPUS, prefix="d"),
            victim=_last_passage,
        )


def _last_passage(passages: Sequence[str]) -> str:
    return passages[-1] if passages else "Ottawa"
