"""What attacks by plain text share: verified drafts, passage templates, and passages with ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragassay import prompts
from ragassay.canon import digest
from ragassay.errors import ConfigError
from ragassay.matching import clean_str, has_content
from ragassay.plugins import AttackerView
from ragassay.types import Message, Passage

_HELPER_TOKENS = 96  # the helper's usual limit; about two tokens a word need more beyond 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A text of the helper model. ``verified``: a reader of it was convinced, at ``trials``."""

    text: str
    verified: bool
    trials: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """How often a text is tried, how long it may be, and which of the helper's samples it takes.

    ``first_sample`` is the number of the first draw; no two texts of one attack share a draw.
    """

    count: int
    max_words: int
    first_sample: int = 0


def write_verified(
    view: AttackerView,
    write: Sequence[Message],
    *,
    usable: Callable[[str], bool],
    read: Callable[[str], Sequence[Message]],
    convinces: Callable[[str], bool],
    trials: Trials,
) -> Draft:
    """Ask the helper for a text until a reader of the text alone is convinced.

    Parameters
    ----------
    view : AttackerView
        Gives the helper model, which writes (at temperature 1) and reads (greedily).
    write : sequence of Message
        Asks for a text; white space within the reply is squeezed.
    usable : callable
        Whether a draft is worth a reader: the reader is not asked about others, nor about drafts
        without a letter or digit.
    read : callable
        Puts a draft to the reader.
    convinces : callable
        Whether the reader's answer accepts the draft.
    trials : Trials
        The limits.

    Returns
    -------
    Draft
        The accepted text, or else the last usable one (the last one with content where none was
        usable, an empty one where none had content), unverified.
    """
    last = spare = ""
    for trial in range(trials.count):
        [reply] = view.ask_helper(
            [write],
            max_tokens=max(_HELPER_TOKENS, 2 * trials.max_words),
            sample_index=trials.first_sample + trial,
        )
        draft = " ".join(reply.split())
        if not has_content(draft):
            continue  # an empty draft cannot convince anybody
        spare = draft
        if not usable(draft):
            continue
        last = draft
        [answer] = view.ask_helper([read(draft)], temperature=0.0)
        if convinces(answer):
            return Draft(text=draft, verified=True, trials=trial + 1)
    return Draft(text=last or spare, verified=False, trials=trials.count)


def holds(text: str, answer: str) -> bool:
    """Tell whether a text holds an answer, by the substring rule of the released PoisonedRAG.

    An answer without a letter or digit is held by no text.

    Examples
    --------
    >>> holds("It was BACON who wrote it.", "Bacon."), holds("Anybody.", "...")
    (True, False)
    """
    return has_content(answer) and clean_str(answer) in clean_str(text)


def make_passages(attack: str, query_id: str, texts: Sequence[str]) -> tuple[Passage, ...]:
    """Wrap texts as passages with stable, opaque ids that differ even where texts are equal."""
    return tuple(
        Passage(id=f"poison-{digest([query_id, attack, number, text])[:16]}", text=text)
        for number, text in enumerate(texts)
    )


def check_slots(prompt: str, *, needed: set[str], optional: set[str]) -> None:
    """Refuse a template that lacks a slot or has one that cannot be filled.

    Raises
    ------
    ConfigError
        The message names the template, its slots and what it needs.
    """
    found = prompts.load(prompt).slots
    if not needed <= found <= needed | optional:
        may = f" and may have {sorted(optional)}" if optional else ""
        raise ConfigError(
            f"prompt {prompt!r} has the slots {sorted(found)}, it needs {sorted(needed)}{may}"
        )


def wordings(prompt: str, **values: str) -> tuple[str, ...]:
    """Fill a passage template: every ``@@ user`` turn is one alternative wording.

    Raises
    ------
    ConfigError
        A turn is not the user's, or has no text.
    """
    template = prompts.load(prompt)
    if any(role != "user" or not text.strip() for role, text in template.turns):
        raise ConfigError(
            f"prompt {prompt!r} is used as wordings of a passage: every turn must be '@@ user' "
            "and hold a text"
        )
    return tuple(message.content for message in template.render(values))
