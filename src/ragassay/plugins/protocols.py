"""What each kind of plug-in must offer, as protocols: methods and properties, no base classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ragassay.errors import BackendError
from ragassay.plugins.access import WhiteBoxEncoder, WhiteBoxLM
from ragassay.types import (
    Dataset,
    Generation,
    Hit,
    Knowledge,
    Message,
    Passage,
    PoisonSet,
    Query,
    Request,
    ScoreRecord,
    Target,
    TextEdit,
    Verdict,
)


class Tools(Protocol):
    """What a defense may use. Every call is counted for the defense that makes it."""

    rng: np.random.Generator

    @property
    def k(self) -> int:
        """How many passages a context has (``retriever.k``).

        A defense that declares ``expand`` is given more of them, and keeps no more than this.
        """

    @property
    def victim_model(self) -> WhiteBoxLM:
        """The victim's model, opened: its probabilities, for defenses that decode themselves.

        Raises :class:`~ragassay.errors.PluginError` where the victim cannot be opened.
        """

    def token_nll(self, texts: Sequence[str]) -> list[NDArray[np.float64]]:
        """Score texts with the experiment's language model (``[language_model]``).

        For each text the negative log-likelihood (natural logarithm) of all its tokens but the
        first, in order: one value fewer than it has tokens. No text is scored twice. A defense
        that uses it declares ``reads_language_model = True``.
        """

    def token_halves(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """Cut texts at the middle of their tokens, of the same model; the first may be longer."""

    def ask(
        self, prompts: Sequence[Sequence[Message]], *, max_tokens: int | None = None
    ) -> list[str]:
        """Ask the victim's model; one raw answer per prompt, in order.

        ``max_tokens`` defaults to the experiment's setting. A failure of the back end raises
        and fails the trial; it never becomes an empty answer.
        """

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts with the experiment's encoder: shape ``(len(texts), d)``, unnormalized."""

    def answer_prompt(self, query: Query, hits: Sequence[Hit]) -> tuple[Message, ...]:
        """Render the victim's own question-answering prompt over some hits.

        The experiment's passage order and title setting are applied; hits are in rank order.
        """

    def passage_text(self, hit: Hit) -> str:
        """The text of a passage as the victim sees it (with the title where so configured)."""

    def ordered(self, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """Hits (given in rank order) in the experiment's prompt order."""


class VictimAnswer(str):
    """The system's answer, raw, and what became of the passages put to it.

    It is a string (empty where a defense declined). ``retrieved`` has one truth value for each
    passage, in their order; so has ``kept``, what the defense let through, which is None where
    the system has no defense.
    """

    retrieved: tuple[bool, ...]
    kept: tuple[bool, ...] | None

    def __new__(
        cls, text: str, retrieved: Sequence[bool] = (), kept: Sequence[bool] | None = None
    ) -> VictimAnswer:
        """Join an answer and what became of the passages."""
        self = super().__new__(cls, text)
        self.retrieved = tuple(retrieved)
        self.kept = None if kept is None else tuple(kept)
        return self


class AttackerView(Protocol):
    """What an attack sees: only what its :class:`Knowledge` declares; the rest raises.

    Whatever needs more than was declared raises
    :class:`~ragassay.errors.KnowledgeError`. "The question(s)" are the exact question with
    ``query="exact"``, the optimization paraphrases with ``query="paraphrases"``; with
    ``query="none"`` there is none to search or compare with. The retriever is that of the
    experiment's first arm, the victim that of its first setting. An attack that is injected in
    sequence sees the corpus with the poison of those before it.
    """

    @property
    def question(self) -> str:
        """The exact question. Needs ``query="exact"``."""

    @property
    def paraphrases(self) -> tuple[str, ...]:
        """The paraphrases to optimize on. Needs ``query="paraphrases"`` or ``"exact"``.

        Those that the attack is evaluated on are never among them. Empty where the experiment
        has no paraphrases and the exact question is known.
        """

    @property
    def correct_answers(self) -> tuple[str, ...]:
        """The accepted correct answers. Needs ``correct_answer=True``."""

    @property
    def drafts(self) -> tuple[str, ...]:
        """Texts published with the data set that argue for the attacker's answer."""

    @property
    def budget(self) -> int:
        """How many passages are asked for, at least 1; the first ones are injected first."""

    @property
    def max_words(self) -> int | None:
        """Most words (runs without white space) of a passage; longer ones are not injected."""

    def ask_helper(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        max_tokens: int = 96,
        temperature: float = 1.0,
        sample_index: int = 0,
    ) -> list[str]:
        """Ask the attacker's own language model. Needs ``llm="helper"`` or more."""

    def ask_victim(self, passages: Sequence[str]) -> VictimAnswer:
        """Ask the system, with these passages added to the corpus. Needs ``llm="query"`` or more.

        Retrieval, prompt and decoding are the experiment's; the question is the exact one,
        which must be declared. The system is undefended, unless the attack has an option
        ``against`` that names a defense of the experiment by its title.
        """

    @property
    def language_model(self) -> WhiteBoxLM:
        """The attacker's model with its internals. Needs ``llm="internals"``.

        It is the victim's unless the experiment names a ``[helper]``.
        """

    def similarity(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Score texts against the question(s), shape ``(len(texts),)``: the mean over them.

        Needs ``retriever="query"`` or more. Scores are those that rank passages.
        """

    @property
    def encoder(self) -> WhiteBoxEncoder:
        """The retriever's encoder with its gradients. Needs ``retriever="gradients"``."""

    def retrieved(self, k: int | None = None) -> tuple[Hit, ...]:
        """Passages of the corpus for the question(s), best first. Needs ``corpus="partial"``.

        ``k`` defaults to the experiment's. With ``corpus="partial"`` texts and titles are
        blank, with ``"contents"`` they are there. For several paraphrases a passage counts with
        its best score.
        """


@runtime_checkable
class Attack(Protocol):
    """Crafts the passages to inject for one target."""

    knowledge: ClassVar[Knowledge]

    def craft(self, target: Target, view: AttackerView, rng: np.random.Generator) -> PoisonSet:
        """Write the poison. ``target.references`` is empty unless declared."""


@runtime_checkable
class Defense(Protocol):
    """Decides what becomes of one retrieved context.

    An optional method ``model_calls(k)`` says how many model calls a context of k passages
    takes at most (the victim's answer included), for the estimates of ``ragassay plan``, and
    ``template_characters()`` how long its longest prompt is beside question and passages, where
    no option ``prompt`` or ``*_prompt`` names it. An
    optional attribute ``expand``, a whole number from 1, asks for contexts of so many times
    ``retriever.k`` passages, and ``reads_language_model``, true, for ``tools.token_nll``.
    """

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Filter, answer or abstain. Must not use passage ids other than as keys."""


@runtime_checkable
class Fitted(Protocol):
    """A detector that must be calibrated on clean contexts before it is used."""

    def fit(self, clean: Sequence[tuple[Query, tuple[Hit, ...]]], tools: Tools) -> Defense:
        """Return a calibrated copy. The calibration queries are disjoint from the tested."""


@runtime_checkable
class Generator(Protocol):
    """A language model.

    ``identity`` names everything that can change its output (weights digest, number type,
    server model). ``gathers`` says how the runner calls it: true, requests of all workers
    are gathered into one large call; false, every worker calls it on its own thread and it
    bounds its concurrency itself.
    """

    @property
    def identity(self) -> str:
        """Everything that can change an output."""

    @property
    def gathers(self) -> bool:
        """Whether the runner gathers the requests of all workers."""

    def generate(self, requests: Sequence[Request]) -> list[Generation | BackendError]:
        """Answer each request, in order. A failed one is returned, not raised."""


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into vectors."""

    @property
    def identity(self) -> str:
        """Everything that can change a result."""

    def encode(self, texts: Sequence[str], *, max_tokens: int | None = None) -> NDArray[np.float32]:
        """Embed, shape ``(n, d)``, float32, unnormalized; ``max_tokens`` None: the model's."""


@runtime_checkable
class Index(Protocol):
    """A searchable corpus. Ties break by (score descending, corpus before poison, id)."""

    def search(self, queries: Sequence[Query], k: int) -> list[tuple[Hit, ...]]:
        """Exact top-k of the clean corpus for each query."""

    def poisoned(
        self, queries: Sequence[Query], poison: Sequence[Passage], k: int
    ) -> list[tuple[Hit, ...]]:
        """Exact top-k of corpus and poison together; the corpus is not encoded again."""


@runtime_checkable
class Retriever(Protocol):
    """Builds an index over a corpus; ``identity`` names all that can change a ranking."""

    @property
    def identity(self) -> str:
        """Everything that can change a result."""

    def index(
        self,
        corpus: Sequence[Passage],
        *,
        fingerprint: str,
        cache_dir: Path,
        progress: Callable[[int, int], None] | None = None,
    ) -> Index:
        """Index the corpus, or load what an earlier run left in ``cache_dir``."""


@runtime_checkable
class Scorer(Protocol):
    """Labels one answer.

    A label depends on query, target, answer and ``declined`` alone: answers that agree in
    these are scored once, and the label goes to all of their trials.
    """

    @property
    def identity(self) -> str:
        """Everything that can change a result."""

    def score(
        self, *, trial_key: str, query: Query, target: Target, answer: str, declined: bool
    ) -> ScoreRecord:
        """Label an answer. ``declined``: the system abstained without asking the victim."""


@runtime_checkable
class EditScorer(Protocol):
    """A scorer that also tells whether an answer asserts what tampering put into its context."""

    def score_edits(
        self,
        *,
        trial_key: str,
        query: Query,
        target: Target,
        answer: str,
        passages: Sequence[tuple[str, Sequence[TextEdit]]],
    ) -> ScoreRecord:
        """Label an answer: ``target_positive`` says that it asserts an edit of a passage.

        ``passages`` are those of the context as they were before, with the edits applied.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer to be labeled, with what its label may depend on, and the trial it is of.

    ``reference_source`` says where the references come from, where that is known.
    """

    trial_key: str
    query: Query
    target: Target
    answer: str
    declined: bool = False
    reference_source: str = ""


Ask = Callable[[Sequence[Request]], list[Generation | BackendError]]
"""Asks a model through the cache: one outcome per request, in order; failures are returned."""


@runtime_checkable
class ModelScorer(Protocol):
    """Labels answers by asking a model, many at a time.

    It never sees which method or condition an answer comes from. ``backend`` is the model; the
    caller asks it, through the cache, so that what was judged once is not paid for again.
    """

    @property
    def identity(self) -> str:
        """Everything that can change a result, the model included."""

    @property
    def backend(self) -> Generator:
        """The model that is asked."""

    def requests_for(self, answers: Sequence[Answered]) -> list[Request]:
        """What will be asked at least: one request for each distinct answer that needs one."""

    def score_many(self, answers: Sequence[Answered], ask: Ask) -> list[ScoreRecord]:
        """Label answers: a record for each of them, in order, with one exception.

        An answer whose request the back end failed gets none, and is left for a later
        call; a reply that cannot be used is a record whose labels are all None.
        """


@runtime_checkable
class DatasetReader(Protocol):
    """Reads a data set from disk."""

    def load(self) -> Dataset:
        """Read and validate; every fault names file, line and value."""
