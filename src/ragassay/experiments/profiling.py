"""Profiles of poison files against a corpus: ``ragassay profile``."""

from __future__ import annotations

from pathlib import Path

from ragassay.construction.profile import Profile, lengths_of, profile
from ragassay.construction.texts import Join, read_clean_texts, read_poison_texts
from ragassay.experiments.setup import load_dataset, load_experiment


def profile_file(
    poison: Path, corpus: Path, *, join: Join | None = None, sample: int = 0, seed: int = 0
) -> tuple[Profile, ...]:
    """Profile every set of a poison file; no model is asked and nothing is encoded.

    Parameters
    ----------
    poison : Path
        A file of ``ragassay attack``, or as published attacks release theirs.
    corpus : Path
        An experiment file (its data set also gives questions that the poison file does not
        repeat), a folder with ``corpus.jsonl``, or JSON lines with a ``text``.
    join : callable, optional
        Puts the question to texts that were released without it.
    sample : int
        Count the words of a random sample of clean passages only, at least 2,000; 0 counts all.
    seed : int
        Seed of sample and bootstrap.

    Raises
    ------
    ConfigError
        There is nothing to join.
    DataError
        A file is damaged or of no known layout.
    NotEstimable
        No clean passage has a word.
    """
    questions: dict[str, str] = {}
    if corpus.suffix == ".toml":
        dataset = load_dataset(load_experiment(corpus))
        questions = {query.id: query.text for query in dataset.queries}
        clean = lengths_of((each.text for each in dataset.corpus), sample=sample, seed=seed)
    else:
        texts = read_clean_texts(corpus)
        clean = lengths_of((each.text for each in texts), sample=sample, seed=seed)
    sets = read_poison_texts(poison, questions=questions, join=join)
    return tuple(
        profile(name, members, clean, seed=seed) for name, members in sets.items() if members
    )
