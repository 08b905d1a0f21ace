"""KeywordAgg: answer from each passage alone, then from the keywords that enough answers share.

Source: Xiang et al., "Certifiably Robust RAG against Retrieval Corruption" (RobustRAG, 2024),
section 4.1 and Algorithm 1; released code at revision 9bc35b2. The aligned evaluation of RAG
defenses ("Prevented is not protected") runs it with k = 5.

Deviations: both prompts are our own wording, with worked examples of our own; the abstention
phrase is the published one. Isolated answers keep the first line only, the aggregated answer
is kept whole (as the aligned evaluation corrected it); the released code cuts both at the first
blank line. An answer with a curly apostrophe counts as abstained too. An empty answer yields no
keyword. Votes are compared with a slack of 1e-9, so that alpha * n is exact. Without any shared
keyword the model is still asked, with an empty list. The long-form mode is not offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ragassay import prompts
from ragassay.defenses.keywords import (
    Extractor,
    abstains,
    hint_string,
    keyword_filter,
    keyword_threshold,
)
from ragassay.defenses.prompt_control import (
    ANSWER_SLOTS,
    check_max_tokens,
    check_slots,
    first_line,
)
from ragassay.plugins import Tools
from ragassay.types import Hit, Json, Query, Verdict

NO_ANSWER = "I don't know."


@dataclass(frozen=True, slots=True, kw_only=True)
class KeywordAgg:
    """Answer from keywords that enough single-passage answers share (RobustRAG).

    One call per passage and one to aggregate. If every isolated answer abstains, the answer is
    ``I don't know.`` without a further call.

    Parameters
    ----------
    alpha : float
        Share of the non-abstained answers that must hold a keyword, in (0, 1].
    beta : float
        Number of answers that suffices however many there are, above 0.
    max_tokens : int, optional
        Longest answer in tokens, for every call; by default the experiment's setting.
    prompt : str
        Template of the isolated answers, with the slots ``contexts`` and ``question``.
    aggregate_prompt : str
        Template of the aggregation, with the slots ``hints`` and ``question``.
    extractor : {"spacy", "simple"}
        Keyword extraction: spaCy's English model as published, or regular expressions.
    drop_stop_words : bool
        Whether stop words are dropped from the shared keywords, as published.
    """

    version: ClassVar[str] = "1"
    alpha: float = 0.3
    beta: float = 3.0
    max_tokens: int | None = None
    prompt: str = "keyword_answer"
    aggregate_prompt: str = "keyword_aggregate"
    extractor: Extractor = "spacy"
    drop_stop_words: bool = True

    def __post_init__(self) -> None:
        keyword_threshold(self.alpha, self.beta, 0)
        check_max_tokens(self.max_tokens)
        check_slots(self.prompt, ANSWER_SLOTS)
        check_slots(self.aggregate_prompt, frozenset({"hints", "question"}))

    def model_calls(self, k: int) -> int:
        """Calls for a context of ``k`` passages, at most: one each, and the aggregation."""
        return k + 1

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Answer by keyword aggregation; all hits count as kept."""
        raw = self._isolated(query, hits, tools)
        answers = [first_line(text) for text in raw]
        vote = keyword_filter(answers, self.alpha, self.beta, self.extractor, self.drop_stop_words)
        hints = hint_string(vote.kept)
        trace: dict[str, Json] = {
            "isolated": raw,
            "abstained": [abstains(answer) for answer in answers],
            "n_nonabstained": vote.n_nonabstained,
            "threshold": vote.threshold,
            "counts": dict(vote.counts),
            "kept": list(vote.kept),
            "hints": hints,
        }
        if vote.n_nonabstained < 1:
            return Verdict(kept=tuple(hits), answer=NO_ANSWER, trace=trace)
        messages = prompts.load(self.aggregate_prompt).render(
            {"hints": hints, "question": query.text}
        )
        (answer,) = tools.ask([messages], max_tokens=self.max_tokens)
        return Verdict(kept=tuple(hits), answer=answer, trace=trace)

    def _isolated(self, query: Query, hits: Sequence[Hit], tools: Tools) -> list[str]:
        if not hits:
            return []
        template = prompts.load(self.prompt)
        asked = [
            template.render({"contexts": tools.passage_text(hit), "question": query.text})
            for hit in hits
        ]
        return tools.ask(asked, max_tokens=self.max_tokens)
