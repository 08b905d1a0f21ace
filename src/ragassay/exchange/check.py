"""Reading a source for the first time: every answer is checked before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ragassay.canon import digest
from ragassay.data.jsonl import existing_file
from ragassay.errors import ConfigError, DataError
from ragassay.exchange.rows import UNDEFENDED, Place, Problems, Row, Source
from ragassay.types import Query, Target

_CHANGED = "the file has changed since it was checked; import it again"
_Key = tuple[str, str]  # data set, query id in the source


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a source holds, checked. The answers themselves are read again by ``rows``.

    ``queries`` maps (data set, id in the source) to the query and target of the run folder;
    ``settings`` a label to its victim and data set; ``places`` each condition (setting,
    attack, budget, defense) to its number of answers; ``missing`` is the number of answers
    that are not there though another query has them.
    """

    source: Source
    files: tuple[tuple[str, str], ...]
    queries: Mapping[_Key, tuple[Query, Target]]
    settings: Mapping[str, tuple[str, str]]
    places: Mapping[Place, int]
    k: int | None
    missing: int
    notes: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of answers."""
        return sum(self.places.values())

    @property
    def defenses(self) -> tuple[str, ...]:
        """Names of the defenses, the undefended system first."""
        return (UNDEFENDED, *sorted({place[3] for place in self.places} - {UNDEFENDED}))

    @property
    def attacks(self) -> tuple[str, ...]:
        """Names of the attacks."""
        return tuple(sorted({attack for _, attack, budget, _ in self.places if budget}))

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets; one that has no name is ``""``."""
        return tuple(sorted({dataset for dataset, _ in self.queries}))

    @property
    def fingerprint(self) -> str:
        """Digest of the questions, targets and groups."""
        return digest([[query, target] for query, target in self.queries.values()])

    def rows(self) -> Iterator[tuple[Query, Target, Row]]:
        """Read the answers again.

        Raises
        ------
        DataError
            A file is no longer what was checked.
        """
        problems = Problems()
        for row in self.source.rows(problems):
            found = self.queries.get((row.dataset, row.query_id))
            if found is None:
                raise DataError(_CHANGED, path=row.path)
            yield *found, row
        if problems.count or _digests(self.source.files) != self.files:
            raise DataError(_CHANGED, path=self.source.files[0])


@dataclass(slots=True)
class _Known:
    """What the first row of a query said, against which all others are held."""

    row: Row
    group: str


@dataclass(slots=True)
class _Checker:
    problems: Problems
    source: Source
    known: dict[_Key, _Known] = field(default_factory=dict)
    seen: dict[Place, dict[_Key, int]] = field(default_factory=dict)
    settings: dict[str, tuple[str, str]] = field(default_factory=dict)
    sizes: set[int] = field(default_factory=set)

    def take(self, row: Row) -> None:
        """Hold a row against what is known of its query, place and setting."""
        key = (row.dataset, row.query_id)
        first = self.known.get(key)
        if first is None:
            bare = Row(
                path=row.path, line=row.line, record=row.record, query_id=row.query_id,
                question=row.question, answer="", references=row.references, wanted=row.wanted,
            )  # fmt: skip
            self.known[key] = _Known(bare, row.group or row.query_id)
        else:
            self._compare(row, first)
        place = self.seen.setdefault(row.place, {})
        if key in place:
            before = f" (before on line {place[key]})" if place[key] else ""
            self.problems.at(
                row, f"query {row.query_id!r:.60} has another answer in {said(row.place)}{before}"
            )
        place[key] = row.line
        about = (row.victim, row.dataset)
        if self.settings.setdefault(row.label, about) != about:
            self.problems.at(
                row,
                f"the setting {row.label!r:.60} has two victims or data sets: "
                f"{'/'.join(self.settings[row.label])} and {'/'.join(about)}",
            )
        self.sizes.add(len(row.context))

    def _compare(self, row: Row, first: _Known) -> None:
        for name, mine, theirs in (
            ("question", row.question, first.row.question),
            ("target", row.wanted, first.row.wanted),
            ("references", row.references, first.row.references),
            ("group_id", row.group or row.query_id, first.group),
        ):
            if mine != theirs:
                where = first.row.record or f"{first.row.path.name}:{first.row.line}"
                self.problems.at(
                    row,
                    f"{name} of query {row.query_id!r:.60} is {_shown(mine)}, "
                    f"but {_shown(theirs)} in {where}",
                )

    def missing(self, *, complete: bool, allowed: bool) -> int:
        """Count the answers that are not there, and report them unless that is allowed."""
        total = 0
        for label, (_, dataset) in self.settings.items():
            here = [place for place in self.seen if place[0] == label]
            places = self._grid(label, here) if complete else here
            members = [key for key in self.known if key[0] == dataset]
            for place in places:
                found = self.seen.get(place, {})
                for key in members if len(found) < len(members) else ():
                    if key in found:
                        continue
                    total += 1
                    if not allowed:
                        file = self.source.file_of(place)
                        self.problems.at(
                            self.known[key].row,
                            f"query {key[1]!r:.60} has no answer in {file or said(place)}"
                            + (f" ({said(place)})" if file else ""),
                        )
        return total

    def _grid(self, label: str, here: Iterable[Place]) -> list[Place]:
        """Every system on clean retrieval and under every attack and budget."""
        defenses = [UNDEFENDED, *sorted({place[3] for place in here} - {UNDEFENDED})]
        pairs = [("", 0), *sorted({place[1:3] for place in here if place[2]})]
        return [(label, *pair, defense) for pair in pairs for defense in defenses]


def read(source: Source, *, allow_missing: bool = False) -> Answers:
    """Check every answer of a source; write nothing.

    Parameters
    ----------
    source : Source
        Where the answers come from.
    allow_missing : bool
        Whether a query may lack an answer that others have; it then counts as missing.

    Raises
    ------
    DataError
        Files are damaged or do not match up: the message lists the first twenty places, each
        with file and line, and their number.
    """
    problems = Problems()
    for path in source.files:
        try:
            existing_file(path)
        except DataError as error:
            problems.take(error)
    problems.raise_any()
    files = _digests(source.files)
    checker = _Checker(problems, source)
    for row in source.rows(problems):
        checker.take(row)
    if not checker.known:
        problems.raise_any()
        raise DataError("there is no answer", path=source.files[0])
    datasets = {dataset for dataset, _ in checker.known}
    if "" in datasets and len(datasets) > 1:
        problems.add("some rows name a data set and some do not", path=source.files[0])
    queries = _queries(checker, problems, several=len(datasets) > 1)
    missing = 0
    if not problems.count:  # what else is wrong would only show up again as missing
        missing = checker.missing(complete=source.complete, allowed=allow_missing)
    problems.raise_any()
    return Answers(
        source=source,
        files=files,
        queries=queries,
        settings=checker.settings,
        places={place: len(found) for place, found in checker.seen.items()},
        k=next(iter(checker.sizes)) or None if len(checker.sizes) == 1 else None,
        missing=missing,
        notes=tuple(source.notes() + _lacking(checker, missing)),
    )


def said(place: Place) -> str:
    """Name a condition in words."""
    setting, attack, budget, defense = place
    retrieval = f"{attack} p={budget}" if budget else "clean retrieval"
    system = "no defense" if defense == UNDEFENDED else f"defense {defense}"
    return f"{setting + ': ' if setting else ''}{retrieval}, {system}"


def _queries(
    checker: _Checker, problems: Problems, *, several: bool
) -> dict[_Key, tuple[Query, Target]]:
    """Give each query an id that is its own in the folder, in the order of the source."""
    result: dict[_Key, tuple[Query, Target]] = {}
    taken: dict[str, _Key] = {}
    for key, known in checker.known.items():
        dataset, own = key
        prefix = f"{dataset}/" if several else ""
        query_id = prefix + own
        if taken.setdefault(query_id, key) != key:
            problems.at(known.row, f"two queries would be called {query_id!r:.60}; rename one")
        row = known.row
        result[key] = (
            Query(id=query_id, text=row.question, group=prefix + known.group, dataset=dataset),
            Target(query_id=query_id, references=row.references, wanted=row.wanted),
        )
    return result


def _lacking(checker: _Checker, missing: int) -> list[str]:
    notes = []
    if missing:
        notes.append(f"{missing:,} answers are missing; their queries are dropped where they lack.")
    places = checker.seen
    if not any(budget == 0 for _, _, budget, _ in places):
        notes.append("There are no answers on clean retrieval: P, J, N, H are not estimable.")
    if not any(budget for _, _, budget, _ in places):
        notes.append("There are no answers on poisoned retrieval.")
    without = sum(not known.row.wanted for known in checker.known.values())
    if without:
        notes.append(f"{without:,} of {len(checker.known):,} queries have no target.")
    return notes


def _shown(value: str | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        value = value[0] if len(value) == 1 else list(value)  # type: ignore[assignment]
    return "not given" if value in ("", []) else repr(value)[:60]


def _digests(paths: Iterable[Path]) -> tuple[tuple[str, str], ...]:
    """Base name and SHA-256 of each file: where it lay says nothing of the answers."""
    result = []
    for path in paths:
        sha = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    sha.update(block)
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
        result.append((path.name, sha.hexdigest()))
    return tuple(result)
