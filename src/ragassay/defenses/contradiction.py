"""Do two answers to one question contradict each other? Asked of a model, pair by pair.

The judge is the victim's own model, under a prompt of ours, or a cross-encoder for natural
language inference (NLI) by its name on the Hugging Face hub or by its folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragassay import prompts
from ragassay.defenses.prompt_control import first_line
from ragassay.errors import BackendUnavailable
from ragassay.matching import normalize_text
from ragassay.plugins import Tools

LLM = "llm"
NLI_SLOTS = frozenset({"premise", "hypothesis"})
_ABSTAINS = re.compile(r"I don['’]t know")
_RELATION = re.compile(r"contradict|entail|neutral")
_MAX_ANSWER = 400  # characters of an answer that are compared
_MAX_TOKENS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradictions:
    """The contradictions among some answers.

    Parameters
    ----------
    vertices : tuple of int
        Positions of the answers that say something, ascending.
    edges : tuple of (int, int)
        Pairs of positions (i < j) that contradict each other.
    probabilities : tuple of (int, int, float or None)
        What the judge said of each pair that was compared: P(contradiction), None where its
        reply names no relation.
    """

    vertices: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    probabilities: tuple[tuple[int, int, float | None], ...]

    def degree_share(self, position: int) -> float | None:
        """Share of the other vertices that a vertex contradicts; None without any other."""
        if position not in self.vertices or len(self.vertices) < 2:
            return None
        return sum(position in edge for edge in self.edges) / (len(self.vertices) - 1)


def says_nothing(answer: str) -> bool:
    """Tell whether an answer holds ``I don't know`` (either apostrophe) or is blank."""
    return not answer.strip() or _ABSTAINS.search(answer) is not None


def contradictions(
    question: str,
    answers: Sequence[str],
    tools: Tools,
    *,
    nli: str = LLM,
    threshold: float = 0.5,
    symmetric: bool = False,
    prompt: str = "nli_contradiction",
) -> Contradictions:
    """Compare all pairs of answers that say something.

    Answers that are equal up to case, punctuation and spacing are not compared, and do not
    contradict each other. Only the first line of an answer counts, up to 400 characters.

    Parameters
    ----------
    question : str
        What was asked.
    answers : sequence of str, length k
        In rank order; of a pair, the earlier one is the premise.
    tools : Tools
        Only ``ask`` is used, and only with ``nli = "llm"``.
    nli : str
        ``"llm"``, or the name or folder of a cross-encoder.
    threshold : float
        Probability from which two answers contradict each other.
    symmetric : bool
        Ask in both directions and take the larger probability.
    prompt : str
        Template for ``"llm"``, with the slots ``premise`` and ``hypothesis``.

    Raises
    ------
    BackendUnavailable
        The cross-encoder cannot be loaded, or has no class for contradiction.
    """
    vertices = tuple(i for i, answer in enumerate(answers) if not says_nothing(answer))
    lines = {i: first_line(answers[i])[:_MAX_ANSWER] for i in vertices}
    forms = {i: normalize_text(line) or line for i, line in lines.items()}
    pairs = [
        (i, j) for a, i in enumerate(vertices) for j in vertices[a + 1 :] if forms[i] != forms[j]
    ]
    told = {i: f'The answer to the question "{question}" is: {lines[i]}' for i in vertices}
    asked = [(told[i], told[j]) for i, j in pairs]
    if symmetric:
        asked += [(b, a) for a, b in asked]
    distinct = list(dict.fromkeys(asked))
    if nli == LLM:
        found = _ask(distinct, tools, prompt)
    else:
        found = [float(p) for p in _infer(distinct, nli)] if distinct else []
    said = dict(zip(distinct, found, strict=True))
    probabilities = []
    for i, j in pairs:
        both = [said[told[i], told[j]], said[told[j], told[i]] if symmetric else None]
        known = [p for p in both if p is not None]
        probabilities.append((i, j, max(known) if known else None))
    return Contradictions(
        vertices=vertices,
        edges=tuple((i, j) for i, j, p in probabilities if p is not None and p >= threshold),
        probabilities=tuple(probabilities),
    )


def relation_probability(reply: str) -> float | None:
    """Read the reply of a language model: 1 for contradiction, 0 for another relation.

    Examples
    --------
    >>> relation_probability("Contradiction."), relation_probability("neutral")
    (1.0, 0.0)
    """
    named = _RELATION.search(reply.lower())
    return None if named is None else float(named[0] == "contradict")


def _ask(statements: Sequence[tuple[str, str]], tools: Tools, prompt: str) -> list[float | None]:
    template = prompts.load(prompt)
    rendered = [template.render({"premise": a, "hypothesis": b}) for a, b in statements]
    replies = tools.ask(rendered, max_tokens=_MAX_TOKENS) if rendered else []
    return [relation_probability(reply) for reply in replies]


def _infer(statements: Sequence[tuple[str, str]], name: str) -> NDArray[np.float64]:
    model, place = _cross_encoder(name)
    logits = np.asarray(
        model.predict([list(pair) for pair in statements], show_progress_bar=False),
        dtype=np.float64,
    )
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return shares[:, place]


@lru_cache(maxsize=1)
def _cross_encoder(name: str) -> tuple[Any, int]:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise BackendUnavailable(
            "an NLI model by name needs sentence-transformers: pip install 'ragassay[local]'; "
            "nli = 'llm' asks the victim's model instead"
        ) from error
    from torch.nn import Identity

    try:
        model = CrossEncoder(name, activation_fn=Identity())
    except (OSError, ValueError) as error:
        raise BackendUnavailable(f"the NLI model {name!r} cannot be loaded: {error}") from error
    labels = {str(label).lower(): int(i) for i, label in model.config.id2label.items()}
    places = [i for label, i in labels.items() if label.startswith("contradict")]
    if len(places) != 1:
        raise BackendUnavailable(
            f"the model {name!r} has the classes {sorted(labels)}, none or several of which mean "
            "contradiction; name one that was trained for natural language inference"
        )
    return model, places[0]
