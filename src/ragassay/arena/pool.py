"""What attackers would inject for a question, with the clean documents they compete against.

Texts and scores come from a release or from a retriever; nothing is retrieved here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

Position = int | None  # of the wanted answer in the query's pool; None for an untargeted attacker
Assignment = Mapping[str, Position]


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents with their retrieval scores for one question."""

    texts: tuple[str, ...]
    scores: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.scores):
            raise ValueError(
                f"need a score for each of {len(self.texts)} texts, got {len(self.scores)}"
            )


@dataclass(frozen=True, slots=True)
class QueryPool:
    """A question with its clean documents and what each attacker would inject.

    Attributes
    ----------
    query_id, question : str
        The question.
    references, answers : tuple of str
        Correct answers; wrong answers that attackers may want.
    clean : Documents
        The best clean documents, best first; at least as many as the context holds, where
        there are so many. ``texts`` may be ids.
    documents : mapping
        Attacker to position of the wanted answer in ``answers`` (None: untargeted) to documents.
    cluster : str
        What to resample as one; the query itself unless it paraphrases another.
    """

    query_id: str
    question: str
    references: tuple[str, ...]
    answers: tuple[str, ...]
    clean: Documents
    documents: Mapping[str, Mapping[Position, Documents]]
    cluster: str = ""
    shared: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        owners: dict[str, str] = {}
        shared = False
        for attacker, sets in self.documents.items():
            for documents in sets.values():
                for text in documents.texts:
                    shared |= owners.setdefault(text, attacker) != attacker
        object.__setattr__(self, "shared", shared)
        if not self.cluster:
            object.__setattr__(self, "cluster", self.query_id)

    @property
    def participants(self) -> tuple[str, ...]:
        """Attackers with documents for this question, by name."""
        return tuple(
            sorted(
                attacker
                for attacker, sets in self.documents.items()
                if any(documents.texts for documents in sets.values())
            )
        )

    def positions(self, attacker: str) -> tuple[int, ...]:
        """Answers for which an attacker has documents; none for an untargeted attacker."""
        return tuple(
            sorted(
                position
                for position, documents in self.documents.get(attacker, {}).items()
                if position is not None and documents.texts
            )
        )

    def untargeted(self, attacker: str) -> bool:
        """Whether an attacker has documents that want no answer in particular."""
        return None in self.documents.get(attacker, {})

    def injected(self, assignment: Assignment) -> dict[str, Documents]:
        """Documents that the attackers of an assignment inject, by name.

        Raises
        ------
        ValueError
            An attacker has no documents for its answer.
        """
        chosen = {}
        for attacker in sorted(assignment):
            documents = self.documents.get(attacker, {}).get(assignment[attacker])
            if documents is None or not documents.texts:
                raise ValueError(
                    f"{attacker} has no documents for answer {assignment[attacker]} of "
                    f"{self.query_id}"
                )
            chosen[attacker] = documents
        return chosen


def restricted(pool: QueryPool, positions: Collection[int]) -> QueryPool:
    """Keep only the documents for some answers; untargeted attackers keep theirs."""
    return replace(
        pool,
        documents={
            attacker: {p: d for p, d in sets.items() if p is None or p in positions}
            for attacker, sets in pool.documents.items()
        },
    )


def injected_by(pool: QueryPool, attacker: str) -> int:
    """How many documents an attacker injects.

    Raises
    ------
    ValueError
        The number differs between its answers.
    """
    sizes = {len(d.texts) for d in pool.documents[attacker].values() if d.texts}
    if len(sizes) != 1:
        raise ValueError(
            f"{attacker} injects different numbers of documents for {pool.query_id}: "
            f"{sorted(sizes)}"
        )
    return sizes.pop()
