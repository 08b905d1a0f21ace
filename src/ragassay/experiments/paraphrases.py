"""Knowledge-based attacks: optimized on five paraphrases of a question, asked with five others.

Source: the knowledge-based setting of PoisonArena.

Deviations: paraphrases come from a file or from the configured helper model with a prompt of
our own; those that are evaluated become questions of their own, in the group of their question,
so that intervals resample them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ragassay import prompts
from ragassay.config import ParaphrasesPart
from ragassay.data.paraphrase_file import (
    HALF,
    Paraphrases,
    check_split,
    paraphrase_ids,
    read_paraphrases,
)
from ragassay.errors import BackendError, ConfigError, DataError
from ragassay.experiments.setup import Setup, template_beside
from ragassay.experiments.view import Asks
from ragassay.matching import normalize_question
from ragassay.types import Query, Request, Sampling, Target

_MOST_DRAWS = 60
_AT_ONCE = 10
_WRITING = Sampling(temperature=1.0, max_tokens=64)


def with_paraphrases(setup: Setup, helper: Asks) -> Setup:
    """Add the paraphrases that an experiment asks for.

    Returns
    -------
    Setup
        The same where it asks for none. Otherwise ``paraphrases`` holds the five that attacks
        may see, and with ``evaluate`` the other five are among the evaluated questions, as
        ``"q#p6"`` to ``"q#p10"`` for a question q.

    Raises
    ------
    ConfigError
        An attacked question has no paraphrases, or the ids of new questions are taken.
    DataError
        The file is wrong, or a paraphrase would be both optimized and evaluated on.
    BackendError
        The helper fails, or repeats itself.
    """
    part = setup.experiment.file.paraphrases
    if part is None:
        return setup
    found = _read(setup, part) if part.path else _written(setup, part, helper)
    check_split(found.values())
    expanded = replace(setup, paraphrases={i: each.optimize for i, each in found.items()})
    return _evaluated(expanded, found) if part.evaluate else expanded


def _read(setup: Setup, part: ParaphrasesPart) -> dict[str, Paraphrases]:
    path = setup.experiment.base / part.path
    found = read_paraphrases(path)
    missing = [query.id for query in setup.evaluated if query.id not in found]
    if missing:
        raise DataError(
            f"no paraphrases for query {missing[0]!r} ({len(missing)} of "
            f"{len(setup.evaluated)} attacked questions have none)",
            path=path,
        )
    return {query.id: found[query.id] for query in setup.evaluated}


def _written(setup: Setup, part: ParaphrasesPart, helper: Asks) -> dict[str, Paraphrases]:
    template = template_beside(part.prompt, setup.experiment.base)
    if template.slots != {"question"}:
        raise ConfigError(
            f"paraphrases.prompt {part.prompt!r} must have the slot {{{{question}}}} alone, it "
            f"has {sorted(template.slots)}"
        )
    return {query.id: _write(query, template, helper) for query in setup.evaluated}


def _write(query: Query, template: prompts.Template, helper: Asks) -> Paraphrases:
    """Draw rewordings until ten differ from each other and from the question."""
    messages = template.render({"question": query.text})
    found: dict[str, str] = {}
    for start in range(0, _MOST_DRAWS, _AT_ONCE):
        drawn = helper.ask(
            [
                Request(messages=messages, sampling=_WRITING, sample_index=start + i)
                for i in range(_AT_ONCE)
            ]
        )
        for each in drawn:
            text = each.text.strip().partition("\n")[0].strip().strip('"')
            key = normalize_question(text)
            if key and key != normalize_question(query.text):
                found.setdefault(key, text)
        if len(found) >= 2 * HALF:
            texts = tuple(found.values())[: 2 * HALF]
            return Paraphrases(query_id=query.id, ids=paraphrase_ids(query.id), texts=texts)
    raise BackendError(
        f"the helper wrote {len(found)} different paraphrases of query {query.id!r} in "
        f"{_MOST_DRAWS} draws, {2 * HALF} are needed; use another [helper], or a file "
        "([paraphrases] path)"
    )


def _evaluated(setup: Setup, found: Mapping[str, Paraphrases]) -> Setup:
    """Make the second half of the paraphrases questions of their own."""
    taken = {query.id for query in setup.dataset.queries}
    evaluated, targets, parents = [], dict(setup.dataset.targets), {}
    for query in setup.evaluated:
        evaluated.append(query)
        new_ids = paraphrase_ids(query.id)[HALF:]
        for new_id, text in zip(new_ids, found[query.id].evaluate, strict=True):
            if new_id in taken:
                raise ConfigError(
                    f"the data set has a question {new_id!r}, the id of a paraphrase; rename it"
                )
            evaluated.append(replace(query, id=new_id, text=text))
            target: Target = setup.dataset.targets[query.id]
            targets[new_id] = replace(target, query_id=new_id)
            parents[new_id] = query.id
    return replace(
        setup,
        evaluated=tuple(evaluated),
        parents=parents,
        dataset=replace(setup.dataset, targets=targets),
    )
