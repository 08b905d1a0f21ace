"""Every value that flows through ragassay, frozen, with no behavior beyond small derivations.

The flow is one way::

    Target -> Attack.craft -> PoisonSet -> overlay -> Hits -> Defense.apply -> Verdict
      -> prompt -> Request -> cache or Generator -> Generation -> TrialRecord
      -> Scorer -> ScoreRecord -> statistics -> summary -> report

Two rules are built into the shapes. A :class:`Passage` carries no origin: whether it is
poison is known to the :class:`PoisonSet` ledger alone, which is joined after the defense
has spoken. And an outcome that is not known is ``None``, never ``False``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text that can be retrieved. It does not say where it comes from."""

    id: str
    text: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question. ``group`` is its injection group, the unit of cluster resampling.

    ``dataset`` names its data set where a run folder holds several. ``split`` is empty for the
    questions that are attacked, ``utility`` for held-out ones that are only answered clean.
    """

    id: str
    text: str
    group: str
    dataset: str = ""
    split: Literal["", "utility"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What counts as right and what the attacker wants, for one query.

    ``references`` are the accepted correct answers, ``wanted`` the attacker's answer followed
    by its aliases (empty: untargeted), ``gold_ids`` the passages that support the truth.
    """

    query_id: str
    references: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    gold_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A corpus with its questions, targets and released poison texts.

    ``drafts`` holds, for a query id, the texts that are published with the data set to argue
    for the attacker's answer (for PoisonedRAG: the part I, without the question prefix).
    ``fingerprint`` is a digest of everything that can change a result. A large ``corpus`` may
    stay on disk; its passages are then read when they are asked for.
    """

    name: str
    fingerprint: str
    corpus: Sequence[Passage]
    queries: tuple[Query, ...]
    targets: Mapping[str, Target]
    drafts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metadata: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    has_qrels: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What an attack must know or control (methods: access table).

    It is a contract, not a comment: the view that ``craft`` receives refuses everything
    that is not declared here.
    """

    llm: Literal["none", "helper", "query", "internals"] = "none"
    retriever: Literal["none", "query", "gradients"] = "none"
    corpus: Literal["none", "partial", "contents"] = "none"
    query: Literal["exact", "paraphrases", "none"] = "exact"
    correct_answer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What something spent: counts, and seconds of wall time and accelerator time.

    ``model_calls`` are requests to a language model; ``model_forwards`` and ``model_backwards``
    are sequences that went through an opened one, and those of them that were differentiated.
    ``gpu_seconds`` are those of a CUDA device in opened models; 0 where there was none.
    """

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    encoder_forwards: int = 0
    encoder_backwards: int = 0
    model_forwards: int = 0
    model_backwards: int = 0
    seconds: float = 0.0
    gpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoisonSet:
    """The passages that one attacker injects for one query, in order of preference.

    A budget of p injects the first p passages. ``details`` holds one mapping per passage
    (trials, verified, words, ...).
    """

    attack: str
    query_id: str
    passages: tuple[Passage, ...]
    knowledge: Knowledge
    wanted: tuple[str, ...] = ()
    attacker: str = ""
    cost: Cost = Cost()
    details: tuple[Mapping[str, Json], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A retrieved passage. ``rank`` starts at 1; a larger ``score`` is more similar."""

    passage: Passage
    rank: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a defense decided about one context.

    ``kept`` are the hits it lets through (rank order). With ``answer`` set, the defense has
    answered itself; with ``abstain`` the system declines; otherwise the victim answers from
    ``kept``. ``suspicion`` maps passage ids (or ``"context"``) to a score, larger = more
    suspicious. ``trace`` keeps every intermediate result, raw.
    """

    kept: tuple[Hit, ...]
    suspicion: Mapping[str, float] = field(default_factory=dict)
    answer: str | None = None
    abstain: bool = False
    trace: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a chat prompt."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Decoding settings. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One question to a model. ``sample_index`` tells repeated draws apart.

    ``schema``, where given, is a JSON schema that the reply must follow; a server that can
    enforce it does, others are asked by the prompt alone.
    """

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    sample_index: int = 0
    schema: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A model's raw output, unedited, and how it came about.

    ``digest`` is the cache key (model identity, messages, sampling, sample index).
    ``seconds`` is the wall time attributed to this request; 0 when it came from the cache.
    """

    text: str
    finish: Literal["stop", "length", "unknown"] = "unknown"
    input_tokens: int = 0
    output_tokens: int = 0
    digest: str = ""
    cached: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsage:
    """What a defense asked of the models, counted whether or not the cache answered.

    ``scored_texts`` are those whose token losses were asked for. Of an opened model, a sequence
    that is processed counts as a call, and a token that branches append as an output token of each.
    """

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    encoded_texts: int = 0
    scored_texts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec:
    """Everything that can change the outcome of one trial; its digest is the trial's key.

    ``setting`` labels the combination of victim, data set and encoding arm where a run holds
    several. ``control`` says which ranks of the context were kept where passages were removed
    after retrieval (``"keep 1,3"``), and is empty for the context as retrieved. ``budget`` 0
    is clean retrieval, where ``attack`` is empty and ``poison`` the digest of nothing, so that
    all attacks share their clean trials. ``variant`` is a protocol's own name for what else
    was done to the context, ``sample`` tells repeated draws of one prompt apart.
    """

    protocol: str
    dataset: str
    query_id: str
    question: str
    attack: str
    budget: int
    poison: str
    retriever: str
    defense: str
    defense_label: str
    prompt: str
    generator: str
    sampling: Sampling
    seed: int
    setting: str = ""
    control: str = ""
    variant: str = ""
    sample: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEntry:
    """A passage as it stood in a trial's context: id, score, origin by the ledger, kept.

    ``copy`` says that a corpus passage has the text of an injected one: the poison of its own
    query or of another. It counts as poison when evidence is removed.
    """

    id: str
    score: float
    origin: Literal["corpus", "own", "foreign"]
    gold: bool
    kept: bool
    copy: Literal["", "own", "foreign"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRecord:
    """One query, end to end. A trial whose ``status`` is ``"failed"`` has no outcome."""

    key: str
    spec: TrialSpec
    status: Literal["done", "failed"]
    context: tuple[ContextEntry, ...] = ()
    answer: str | None = None
    declined: bool = False
    suspicion: Mapping[str, float] = field(default_factory=dict)
    trace: Mapping[str, Json] = field(default_factory=dict)
    usage: ToolUsage = ToolUsage()
    generation: str = ""
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEdit:
    """One replacement: ``before`` stood at ``[start, stop)`` of a passage, now ``after``."""

    start: int
    stop: int
    before: str
    after: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageEdits:
    """What tampering did to a passage that was chosen for it.

    ``position`` counts the passages of the context from 0; ``passage`` is the id of the passage
    before, ``replaced_by`` that of what the victim saw. ``reason`` says why nothing was edited.
    """

    position: int
    passage: str
    replaced_by: str
    applied: bool
    edits: tuple[TextEdit, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditsRecord:
    """The arm of a trial under the dose protocol, and what was done to its passages.

    ``arm`` is ``clean``, ``zero_dose``, ``closed_book``, ``irrelevant`` or ``tampered``;
    ``order`` is the place of the arm among those of its question and defense, from 0;
    ``instruction`` the digest of the prompt template. ``requested`` and ``applied`` count
    passages; ``mode`` says among which they were chosen.
    """

    trial_key: str
    query_id: str
    setting: str
    defense: str
    arm: str
    instruction: str
    order: int
    rule: str = ""
    draw: int = 0
    mode: str = ""
    requested: int = 0
    applied: int = 0
    passages: tuple[PassageEdits, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A span of the answer that decided a label: ``answer[start:stop]``."""

    label: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord:
    """What a scorer says of one answer. ``None`` is "not scored" or "not applicable".

    A label that is ``None`` and named in ``uncertain`` was looked at and could not be decided.
    ``stance`` is what the answer does with the attacker's answer, for scorers that say so:
    ``endorses``, ``mentions``, ``rejects``, ``absent`` or ``uncertain``. ``provenance`` says
    where the label comes from (model, annotators, attempts).
    """

    trial_key: str
    scorer: str
    version: str
    target_positive: bool | None
    correct: bool | None
    abstained: bool | None
    uncertain: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    stance: str = ""
    provenance: Mapping[str, Json] = field(default_factory=dict)
