"""Secure decoding: passages vote on every token with their probabilities.

The model reads each passage alone. At every step the probabilities of the next token are joined
over the passages; where the best token leads by enough it is taken, and where it does not the
token that the model would write without any passage. Passages from which the model would
abstain have no vote.

Source: Xiang et al., "Certifiably Robust RAG against Retrieval Corruption" (RobustRAG, 2024),
section 4.2 and Algorithm 2; released code at revision 9bc35b2 (``DecodingAgg``).

Deviations: the prompts are the victim's own. With ``compat = "paper"`` probabilities are
averaged, so that ``eta`` lies in [0, 1] whatever the number of passages, and no token is barred.
``compat = "released"`` sums them as the code does (its ``eta`` is k times larger), bars the first
tokens of "I", "/n" and "Please" from the first place (the second is a slip for a line break), and
asks for the abstention with a space in front. Without a passage that votes, the answer is "I
don't know.", as released. Decoding ends at an end token, at an empty line, or after
``max_tokens``; it is greedy whatever the experiment's temperature says. Certificates are not
offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ragassay.defenses.keywordagg import NO_ANSWER
from ragassay.errors import ConfigError
from ragassay.plugins import Tools
from ragassay.plugins.access import Branches, Ids, WhiteBoxLM
from ragassay.types import Hit, Json, Query, Verdict

Compat = Literal["paper", "released"]
ABSTENTION = "I don't know"
BARRED = ("I", "/n", "Please")


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustRAGDecoding:
    """Decode with the joined token probabilities of single passages (RobustRAG).

    Parameters
    ----------
    eta : float
        The best token is taken if it leads the second by more than this, at least 0. At 0 the
        model without passages decides ties only.
    abstention_threshold : float
        Probability of the abstention phrase from which a passage has no vote, in (0, 1].
    max_tokens : int
        Longest answer in tokens.
    compat : {"paper", "released"}
        Means of probabilities, or the released code's sums and barred first tokens.
    """

    version: ClassVar[str] = "1"
    eta: float = 0.0
    abstention_threshold: float = 0.99
    max_tokens: int = 32
    compat: Compat = "paper"

    def __post_init__(self) -> None:
        if not self.eta >= 0 or not 0 < self.abstention_threshold <= 1 or self.max_tokens < 1:
            raise ConfigError(
                "need eta >= 0, 0 < abstention_threshold <= 1 and max_tokens >= 1, got "
                f"eta={self.eta}, abstention_threshold={self.abstention_threshold}, "
                f"max_tokens={self.max_tokens}"
            )
        if self.compat == "paper" and self.eta > 1:
            raise ConfigError(f"a mean of probabilities leads by 1 at most, got eta={self.eta}")

    def model_calls(self, k: int) -> int:
        """Sequences read for ``k`` passages, at most: each alone and with the abstention."""
        return 2 * k + 1

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Answer by secure decoding; all hits count as kept."""
        trace: dict[str, Json] = {"abstention": [], "votes": 0, "steps": []}
        if not hits:
            return Verdict(kept=(), answer=NO_ANSWER, trace=trace)
        model = tools.victim_model
        prompts = [model.chat_ids(tools.answer_prompt(query, [hit])) for hit in hits]
        alone = model.chat_ids(tools.answer_prompt(query, ()))
        with model.branches([*prompts, alone]) as branches:
            silence = self._silence(model, prompts, branches.logits[:-1])
            voting = [i for i, p in enumerate(silence) if p < self.abstention_threshold]
            trace |= {"abstention": [round(p, 6) for p in silence], "votes": len(voting)}
            if not voting:
                return Verdict(kept=tuple(hits), answer=NO_ANSWER, trace=trace)
            answer, steps = self._decode(model, branches, voting)
        return Verdict(kept=tuple(hits), answer=answer, trace={**trace, "steps": steps})

    def _silence(
        self, model: WhiteBoxLM, prompts: Sequence[Ids], logits: NDArray[np.float32]
    ) -> list[float]:
        """Probability of the abstention behind each prompt, or a bound below the threshold.

        It is at most the probability of its first token, which is known without another pass.
        """
        phrase = model.tokenize(f" {ABSTENTION}" if self.compat == "released" else ABSTENTION)
        found = [float(p) for p in probabilities(logits)[:, phrase[0]]]
        asked = [i for i, p in enumerate(found) if p >= self.abstention_threshold]
        logs = model.logprobs([(prompts[i], phrase) for i in asked])
        for i, each in zip(asked, logs, strict=True):
            found[i] = float(np.exp(each.sum(dtype=np.float64)))
        return found

    def _decode(
        self, model: WhiteBoxLM, branches: Branches, voting: Sequence[int]
    ) -> tuple[str, list[Json]]:
        """Decode; the last branch is the one without passages."""
        written: list[int] = []
        steps: list[Json] = []
        while len(written) < self.max_tokens:
            logits = branches.logits
            votes = probabilities(logits[voting]).sum(axis=0)
            if self.compat == "paper":
                votes /= len(voting)
            elif not written:
                votes[_first_tokens(model)] = 0.0
            token, gap = secure_token(votes, int(np.argmax(logits[-1])), self.eta)
            steps.append({"gap": round(gap, 6), "voted": gap > self.eta})
            if token in branches.stop:
                break
            written.append(token)
            if "\n\n" in model.decode(written).lstrip():
                break
            if len(written) < self.max_tokens:
                branches.append(token)
        return model.decode(written), steps


def probabilities(logits: ArrayLike) -> NDArray[np.float64]:
    """Softmax of each row, shape (m, V)."""
    values = np.asarray(logits, dtype=np.float64)
    odds = np.exp(values - values.max(axis=1, keepdims=True))
    found: NDArray[np.float64] = odds / odds.sum(axis=1, keepdims=True)
    return found


def secure_token(votes: ArrayLike, alone: int, eta: float) -> tuple[int, float]:
    """Choose the next token.

    Parameters
    ----------
    votes : array-like of float, shape (V,)
        Joined probabilities, V >= 2.
    alone : int
        The token that the model would write without passages.
    eta : float
        What the best token must lead by.

    Returns
    -------
    tuple of int and float
        The token, and by how much the best one leads. Of equal tokens the first counts.

    Examples
    --------
    >>> token, gap = secure_token([1.7, 0.3, 0.0], alone=2, eta=1.0)
    >>> token, round(gap, 9)
    (0, 1.4)
    >>> secure_token([1.7, 0.3, 0.0], alone=2, eta=1.5)[0]
    2
    """
    values = np.asarray(votes, dtype=np.float64)
    best = int(np.argmax(values))
    gap = float(values[best] - np.delete(values, best).max())
    return (best if gap > eta else alone), gap


def _first_tokens(model: WhiteBoxLM) -> list[int]:
    return sorted({ids[0] for word in BARRED if (ids := model.tokenize(word))})
