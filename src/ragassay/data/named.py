"""A public data set by its name in the ``ir_datasets`` catalog.

The library downloads what it needs on first use and keeps it in its own folder. Passages,
questions and relevance come from it; the attacker's targets from a released file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ragassay.data.assembly import Parts, Question, Selection, assemble, listed
from ragassay.data.released import read_targets
from ragassay.errors import BackendUnavailable, ConfigError, DataError
from ragassay.types import Dataset, Passage

_ANSWERS = ("answers", "short_answers", "references")


@dataclass(frozen=True, slots=True, kw_only=True)
class IrDatasets:
    """A public data set by name (``beir/nq/test``), through the ir_datasets library.

    Parameters
    ----------
    name : str
        Name in the catalog of ir_datasets.
    queries : int
        How many questions without a target are kept, in the order of the data set; 0 keeps
        all.
    targets : str
        File with the attacker's targets in any released layout; none if empty.
    group_size : int
        Questions per injection group.
    """

    name: str
    queries: int = 0
    targets: str = ""
    group_size: int = 10

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("name is empty: give a name of ir_datasets, such as 'beir/nq/test'")
        if self.queries < 0:
            raise ConfigError(f"queries = {self.queries}: need 0 (all) or more")
        Selection(group_size=self.group_size)

    def load(self) -> Dataset:
        """Download (the first time) and read the data set.

        Raises
        ------
        BackendUnavailable
            The library is not installed, or the data cannot be downloaded.
        ConfigError
            The library knows no data set of this name, or it lacks passages or questions.
        DataError
            The targets are damaged or fit no question.
        """
        path = Path(self.targets) if self.targets else None
        released = read_targets(path) if path else ()  # before the download
        source = _open(self.name)
        try:
            parts = Parts(
                name=self.name,
                corpus=_corpus(source, self.name),
                questions=_questions(source, self.name),
                gold=_gold(source) if source.has_qrels() else None,
                released=released,
                targets_path=path,
            )
        except (DataError, ConfigError):
            raise
        except Exception as error:  # whatever the download raises becomes one clear line
            raise BackendUnavailable(
                f"data set {self.name!r} cannot be read through ir_datasets: "
                f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
            ) from error
        _check_gold(parts)
        return assemble(self._fewer(parts), Selection(group_size=self.group_size))

    def _fewer(self, parts: Parts) -> Parts:
        if not self.queries:
            return parts
        targeted = {released.query_id for released in parts.released}
        others = [question.id for question in parts.questions if question.id not in targeted]
        kept = targeted.union(others[: self.queries])
        return replace(
            parts, questions=tuple(question for question in parts.questions if question.id in kept)
        )


# --------------------------------------------------------------------------------- internals


def _open(name: str) -> Any:
    try:
        import ir_datasets
    except ImportError as error:
        raise BackendUnavailable(
            f"the data set {name!r} needs ir_datasets: pip install 'ragassay[beir]'"
        ) from error
    try:
        source = ir_datasets.load(name)
    except KeyError as error:
        raise ConfigError(
            f"ir_datasets knows no data set {name!r}; see https://ir-datasets.com"
        ) from error
    lacking = [
        what
        for what, there in (("passages", source.has_docs()), ("questions", source.has_queries()))
        if not there
    ]
    if lacking:
        raise ConfigError(
            f"the data set {name!r} has no {' and no '.join(lacking)}; name a part that has, "
            "such as 'beir/nq' or 'beir/msmarco/dev'"
        )
    return source


def _corpus(source: Any, name: str) -> tuple[Passage, ...]:
    corpus = tuple(
        Passage(id=str(doc.doc_id), title=str(getattr(doc, "title", "") or ""), text=_text(doc))
        for doc in source.docs_iter()
    )
    _unique((passage.id for passage in corpus), name, "passage")
    if not any(passage.text.strip() for passage in corpus):
        raise DataError(f"all {len(corpus)} passages are empty", path=name)
    return corpus


def _questions(source: Any, name: str) -> tuple[Question, ...]:
    questions = []
    for query in source.queries_iter():
        answers = [answer for field in _ANSWERS for answer in getattr(query, field, None) or ()]
        questions.append(
            Question(
                id=str(query.query_id),
                text=_text(query),
                references=tuple(str(answer) for answer in answers),
            )
        )
    _unique((question.id for question in questions), name, "question")
    return tuple(questions)


def _text(record: Any) -> str:
    text = getattr(record, "text", None)
    return text if isinstance(text, str) else str(record.default_text())


def _gold(source: Any) -> dict[str, tuple[str, ...]]:
    gold: dict[str, dict[str, None]] = {}
    for row in source.qrels_iter():
        if row.relevance > 0:
            gold.setdefault(str(row.query_id), {})[str(row.doc_id)] = None
    return {query_id: tuple(ids) for query_id, ids in gold.items()}


def _unique(ids: Iterable[str], name: str, what: str) -> None:
    seen: set[str] = set()
    for key in ids:
        if key in seen:
            raise DataError(f"the {what} id {key!r} occurs twice", path=name)
        seen.add(key)


def _check_gold(parts: Parts) -> None:
    passages = {passage.id for passage in parts.corpus}
    questions = {question.id for question in parts.questions}
    dangling = [
        f"query {query_id!r}, passage {passage_id!r}"
        for query_id, ids in (parts.gold or {}).items()
        for passage_id in ids
        if query_id not in questions or passage_id not in passages
    ]
    if dangling:
        raise DataError(
            f"{len(dangling)} relevance rows have unknown ids: {listed(dangling)}", path=parts.name
        )
