"""Documents taken apart into trigger and content."""

from __future__ import annotations

from typing import Any

import pytest

from ragassay.arena.variants import MIN_SHARE, SENTENCES, common_texts, take_apart

QUESTION = "Who built the harbor of Lund?"
PUBLISHED = ("The harbor of Lund was built by Ann, the mason.", "Ann built it, they say.")


@pytest.mark.parametrize(
    ("text", "details", "expected"),
    [
        # The attack says so: before, content, behind.
        (f"{QUESTION} Ann did. xq zz", {"payload": "Ann did."},
         ("Who built the harbor of Lund? ", "Ann did.", " xq zz", "declared")),
        ("Ships rest here.!!Ann!!", {"trigger_start": 16, "trigger_end": 23},
         ("", "Ships rest here.", "!!Ann!!", "declared")),
        # A published text is in it, lower-cased and with other spaces, cut off at the end.
        ("the harbor of lund was built by ann, the mason. zebra ##ing", {},
         ("", "the harbor of lund was built by ann, the mason.", " zebra ##ing", "published")),
        ("who built? The harbor of Lund was built by Ann, the", {},
         ("who built? ", "The harbor of Lund was built by Ann, the", "", "published")),
        ("Ann built it, they say.", {}, ("", "Ann built it, they say.", "", "published")),
        # The question stands in front or behind.
        ("who built the harbor of Lund. Bob did it.", {},
         ("who built the harbor of Lund. ", "Bob did it.", "", "question")),
        ("Bob did it. Who built the harbor of Lund?", {},
         ("", "Bob did it.", " Who built the harbor of Lund?", "question")),
    ],
)  # fmt: skip
def test_documents_are_taken_apart(
    text: str, details: dict[str, Any], expected: tuple[str, ...]
) -> None:
    part = take_apart(text, question=QUESTION, published=PUBLISHED, details=details)
    assert part is not None
    assert (part.before, part.content, part.after, part.by) == expected
    assert part.text("own", part.content) == text
    assert part.text("none", part.content) == part.content
    assert part.text("own", "C") == f"{part.before}C{part.after}"
    assert part.text("none", "C") == "C"


@pytest.mark.parametrize(
    ("text", "details"),
    [
        ("The marbor of Lund was spilt by Ann, the mason.", {}),  # tokens of it are replaced
        (QUESTION, {}),  # nothing is left for a content
        ("Bob did it.", {"payload": "Ann did it."}),  # declared, but it is not there
        ("Bob did it.", {"payload": "  "}),
        ("Bob did it.", {"trigger_start": 3, "trigger_end": 6}),  # in the middle
        ("Bob did it.", {"trigger_start": 0, "trigger_end": 11}),  # all of it
        ("Bob did it.", {"trigger_start": "0", "trigger_end": None}),
        ("", {}),
    ],
)
def test_what_cannot_be_taken_apart_stays_whole(text: str, details: dict[str, Any]) -> None:
    assert take_apart(text, question=QUESTION, published=PUBLISHED[:1], details=details) is None


def test_a_run_shorter_than_the_share_is_no_published_text() -> None:
    words = [f"w{i}" for i in range(10)]
    enough = round(MIN_SHARE * len(words))
    for kept, found in ((enough, True), (enough - 1, False)):
        text = " ".join(words[:kept]) + " other"
        part = take_apart(text, question="?", published=[" ".join(words)], details={})
        assert (part is not None) == found


def test_common_texts_are_the_published_ones_then_sentences_and_never_repeat() -> None:
    assert common_texts("Ann", PUBLISHED, 2) == PUBLISHED
    more = common_texts("Ann", [*PUBLISHED, " ", PUBLISHED[0]], 4)
    assert more[:2] == PUBLISHED
    assert more[2] == "The answer is Ann."
    bare = common_texts("Ann", (), len(SENTENCES) + 3)
    assert len(set(bare)) == len(SENTENCES) + 3
    assert all("Ann" in text for text in bare)
    assert common_texts("Ann", (), 1) == ("The answer is Ann.",)
