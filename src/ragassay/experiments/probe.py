"""The split-knowledge probe: passages that mislead only together with what is already there.

From a two-hop question with annotated support comes a candidate: A, the first hop, stays in the
corpus as it is; B, the passage to inject, is the second hop with the answer replaced by the
target. A reader then answers from nothing, from A, from B and from both, and a candidate is
accepted if it gives the target from both and from none of the other three.

Source: "Prevented is not protected", sections 2.2 and 4.4 and appendices G and K, for the probe
and its purpose. How its 311 candidates were built was not released; the construction is ours.

Deviations: one edited passage is injected instead of three joined sentences. Which passage is
the second hop, whether A leads to it and whether B gives too much away is decided by whole
tokens, names and shapes of answers (:mod:`ragassay.experiments.probe_candidates`), and then by
the reader. The reader must be another model than every victim: candidates that were chosen by
the victim's own answers would be selected for the outcome that is measured.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragassay import plugins, prompts
from ragassay.canon import to_plain
from ragassay.config import GeneratorPart, Part, RunPart
from ragassay.errors import (
    BackendError,
    BackendUnavailable,
    ConfigError,
    Interrupted,
    PluginError,
    StoreError,
)
from ragassay.experiments.clients import open_model
from ragassay.experiments.monitor import Monitor
from ragassay.experiments.probe_candidates import Candidate, Screening, find_candidates, screen
from ragassay.experiments.probe_reader import CONTEXTS, Verified, verify
from ragassay.experiments.setup import Experiment, load_dataset
from ragassay.plugins import Ask, Generator, Scorer
from ragassay.prompts import Template
from ragassay.types import Generation, Json, Request, Sampling

__all__ = [
    "CONTEXTS",
    "METHOD",
    "Candidate",
    "Probe",
    "Screening",
    "Verified",
    "build_probe",
    "find_candidates",
    "screen",
    "verify",
]

METHOD = "split_knowledge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What building a probe gave. ``written`` candidates are in ``path``; None if there is none."""

    screening: Screening
    verified: tuple[Verified, ...]
    written: int
    path: Path | None

    @property
    def accepted(self) -> int:
        """How many candidates were accepted."""
        return sum(each.accepted for each in self.verified)

    @property
    def reasons(self) -> dict[str, int]:
        """Why the reader rejected candidates, the most frequent reason first."""
        return dict(Counter(v.reason for v in self.verified if v.reason).most_common())


def build_probe(
    experiment: Experiment,
    out: Path,
    *,
    force: bool = False,
    all_candidates: bool = False,
    stage: Callable[[str], None] = lambda text: None,
) -> Probe:
    """Build the probe for the data set of an experiment and write it as a file of targets.

    The reader is the experiment's ``[helper]``; it reads with the victim's prompt, and its
    answers are labeled by whole tokens and by the experiment's leading rule.

    Parameters
    ----------
    experiment : Experiment
        From :func:`ragassay.load_experiment`. Attacks, defenses and retrievers are not used.
    out : Path
        The file to write, ``.jsonl``; written whole or not at all, and not where no candidate
        is there to write.
    force : bool
        Whether a file that is already there is replaced.
    all_candidates : bool
        Whether rejected candidates are written too, with their labels and the reason.
    stage : callable, optional
        Hears what is being done.

    Raises
    ------
    ConfigError
        There is no helper, or it is one of the victims; ``out`` is there already, or is no
        place for a file.
    DataError
        The data set is wrong.
    BackendError
        The reader failed again and again; answers that arrived are in the cache.
    Interrupted
        The user stopped the reader.
    StoreError
        The file cannot be written.
    """
    _check_out(out, force=force)
    reader, sampling = _reader(experiment)
    template = _template(experiment)
    scorer = _headline(experiment)
    stage("reading the data set")
    screening = screen(load_dataset(experiment), seed=experiment.file.seed)
    stage(f"asking the reader about {len(screening.candidates)} candidates")
    titles = experiment.file.prompt.titles
    with _asking(reader, experiment.file.run, stage) as ask:
        verified = verify(
            screening.candidates, ask, template, sampling, titles=titles, scorer=scorer
        )
    origin: dict[str, Json] = {
        "seed": experiment.file.seed,
        "reader": reader.identity,
        "prompt": f"{template.digest}:{'titles' if titles else 'text'}",
        "sampling": to_plain(sampling),
    }
    rows = [_row(each, origin) for each in verified if all_candidates or each.accepted]
    if rows:
        _check_out(out, force=force)
        _write(out, rows)
    return Probe(
        screening=screening,
        verified=tuple(verified),
        written=len(rows),
        path=out if rows else None,
    )


# --------------------------------------------------------------------- the experiment's parts


def _reader(experiment: Experiment) -> tuple[Generator, Sampling]:
    """Build the reader; it must be another model than every victim."""
    part = experiment.file.helper
    if part is None:
        raise ConfigError("the probe needs a reader that is not the victim: name it under [helper]")
    reader = _generator(part, experiment)
    for victim in experiment.file.generator:
        if _generator(victim, experiment).identity == reader.identity:
            raise ConfigError(
                f"[helper] and the generator {victim.title!r} are the same model "
                f"({reader.identity}); the reader that selects candidates must be another one "
                "than every victim"
            )
    sampling = Sampling(temperature=part.temperature, top_p=part.top_p, max_tokens=part.max_tokens)
    return reader, sampling


def _generator(part: GeneratorPart, experiment: Experiment) -> Generator:
    built = _built("generator", part, experiment)
    if not isinstance(built, Generator):
        raise PluginError(f"generator {part.plugin!r} lacks a method that a generator must offer")
    return built


def _headline(experiment: Experiment) -> Scorer | None:
    """Build the leading rule, if it labels without asking a model."""
    scoring = experiment.file.scoring
    leading = [rule for rule in scoring.rules if rule.title == scoring.headline]
    part = (leading or list(scoring.rules))[0]
    built = _built("scorer", part, experiment)
    return built if isinstance(built, Scorer) else None


def _built(kind: plugins.Kind, part: Part, experiment: Experiment) -> Any:
    found = plugins.find(kind, part.plugin, folder=experiment.base)
    return plugins.build(found, part.options, folder=experiment.base)


def _template(experiment: Experiment) -> Template:
    name = experiment.file.prompt.template
    path = experiment.base / name
    template = prompts.load(str(path) if path.is_file() else name)
    if template.slots != {"contexts", "question"}:
        raise ConfigError(
            f"prompt.template {name!r} must have the slots {{{{contexts}}}} and {{{{question}}}}, "
            f"it has {sorted(template.slots)}"
        )
    return template


@contextmanager
def _asking(reader: Generator, run: RunPart, stage: Callable[[str], None]) -> Iterator[Ask]:
    """Ask through the cache. A request that fails is returned; too many of them raise."""

    def one_by_one(requests: Sequence[Request]) -> Iterator[Generation | BackendError]:
        in_a_row = 0
        for request in requests:  # those that were answered are in the cache
            try:
                yield client.ask([request])[0]
                in_a_row = 0
            except BackendUnavailable:
                raise
            except BackendError as error:
                in_a_row += 1
                if in_a_row >= run.max_failures:
                    raise
                yield error

    def ask(requests: Sequence[Request]) -> list[Generation | BackendError]:
        try:
            return list(client.ask(requests))
        except BackendUnavailable:
            raise
        except BackendError:
            return list(one_by_one(requests))

    try:
        with open_model(reader, run, Monitor(stage=stage)) as client:
            yield ask
    except KeyboardInterrupt:
        raise Interrupted(
            "stopped; answers that arrived are in the cache, the same command goes on from there"
        ) from None


# ------------------------------------------------------------------------------- the file


def _row(verified: Verified, origin: Mapping[str, Json]) -> dict[str, Any]:
    """One line of the file: the native layout of targets, and where it comes from."""
    candidate = verified.candidate
    return {
        "query_id": candidate.query.id,
        "query": candidate.query.text,
        "references": list(candidate.references),
        "wanted": list(candidate.wanted),
        "texts": [candidate.text],
        "method": METHOD,
        "complete": True,
        "injected": True,
        "group": candidate.query.id,
        "accepted": verified.accepted,
        "reason": verified.reason,
        "bridge": candidate.bridge,
        "a": candidate.first.id,
        "b_from": candidate.second.id,
        "kind": candidate.kind,
        "target_drawn": candidate.drawn,
        "labels": to_plain(verified.labels),
        "answers": to_plain(verified.answers),
        **origin,
    }


def _check_out(out: Path, *, force: bool) -> None:
    if not out.name.endswith((".jsonl", ".ndjson")):
        raise ConfigError(f"{out}: a file of targets with one object a line must end in .jsonl")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {out.parent}")
    if out.exists() and not out.is_file():
        raise ConfigError(f"{out} is not a regular file")
    if out.exists() and not force:
        raise ConfigError(f"{out} is there already; --force replaces it")


def _write(out: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Replace the whole file atomically: readers see the old one or the new one."""
    temporary = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            for row in rows:
                file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(f"{out} cannot be written: {error.strerror or error}") from error


def _line(row: Mapping[str, Any]) -> bytes:
    try:
        return (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can hold as an escape only
        return (json.dumps(row) + "\n").encode("ascii")
