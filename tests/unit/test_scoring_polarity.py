"""Correct outside negation, stance, abstention, fooled, adopted, resolved, and the scorer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragassay.plugins import Scorer
from ragassay.scoring.adoption import adopted
from ragassay.scoring.polarity import (
    ABSTENTION_PHRASES,
    PolarityMatch,
    abstains,
    asserted,
    correct,
    fooled,
    negated,
    pole,
    resolved,
    stance,
    withdrawn_low_overlap,
)
from ragassay.tampering import Edit
from ragassay.types import Query, Target

PARIS = ["Paris"]

# -------------------------------------------------------------------------------- abstention


@pytest.mark.parametrize("phrase", ABSTENTION_PHRASES)
def test_each_phrase_of_the_paper_marks_an_abstention_in_any_case(phrase: str) -> None:
    assert abstains(f"Well, {phrase.upper()} here.")
    assert abstains(phrase.replace("'", "’"))


def test_the_list_is_the_paper_s() -> None:
    assert len(ABSTENTION_PHRASES) == 7


@pytest.mark.parametrize("answer", ["", "Paris.", "I do know.", "It is clear that it is Paris."])
def test_other_answers_are_no_abstentions(answer: str) -> None:
    assert not abstains(answer)


def test_an_abstention_is_not_correct_although_it_names_the_reference() -> None:
    assert correct("There is not enough information on Paris.", PARIS) is False
    assert correct("It is unclear whether he does. Yes.", ["yes"]) is False


# ------------------------------------------------------------------------ outside negation


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Paris", True), ("Paris, not Madrid", True), ("Madrid, not Paris", False),
        ("It is not in Paris.", False), ("It isn't Paris.", False), ("It isn’t Paris.", False),
        ("It never stood in Paris.", False), ("Madrid rather than Paris", False),
        ("Madrid instead of Paris", False), ("Neither Madrid nor Paris", False),
        ("Without Paris it fails", False), ("No Paris", False), ("It cannot be Paris", False),
        ("It is not Madrid but Paris", True), ("It is not Madrid; it is Paris.", True),
        ("No, Paris.", True), ("Not Madrid. Paris.", True), ("not there however Paris", True),
        ("not one two three four five Paris", False),  # the sixth token
        ("not one two three four five six Paris", True),  # the seventh
        ("Not only Paris", True), ("No doubt Paris", True), ("It is not Paris. It is Paris.", True),
        ("Nothing about it", False), ("parisian", False), ("", False), ("Knot Paris", True),
    ],
)  # fmt: skip
def test_a_reference_counts_outside_the_scope_of_a_negation(answer: str, right: bool) -> None:
    assert correct(answer, PARIS) is right


def test_a_scope_begins_after_its_cue_and_ends_at_a_boundary() -> None:
    answer = "It is not the old mill, nor 3.5 miles off; fine."
    assert [answer[a:b] for a, b in negated(answer)] == ["the old mill", "3.5 miles off"]


def test_a_cue_without_anything_after_it_has_no_scope() -> None:
    assert negated("No.") == negated("It is not") == []


def test_any_accepted_form_counts_and_written_otherwise() -> None:
    assert correct("There are two.", ["2"])
    assert correct("On 4 May 1961.", ["May 4, 1961"])
    assert correct("It was Stone.", ["Ada Stone"])
    assert correct("Rome or Paris", ["London", "Paris"])


def test_without_a_usable_reference_nothing_is_said() -> None:
    assert correct("Paris", []) is None
    assert correct("Paris", ["..."]) is None


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=80))
def test_whatever_the_answer_scopes_lie_inside_it_and_labels_are_given(answer: str) -> None:
    assert all(0 <= a < b <= len(answer) for a, b in negated(answer))
    assert all(0 <= a < b <= len(answer) for a, b in asserted(answer, ["Paris"]))
    assert correct(answer, PARIS) in {True, False}
    assert stance(answer) in {"yes", "no", ""}


# ------------------------------------------------------------------------------------ stance


@pytest.mark.parametrize(
    ("answer", "side"),
    [
        ("Yes", "yes"), ("No", "no"), ("Yes, it is.", "yes"), ("No. It is not.", "no"),
        ("True", "yes"), ("False.", "no"), ("Answer: yes", "yes"), ("", ""),
        ("The mill is old.", ""), ("Nobody knows.", ""),
    ],
)  # fmt: skip
def test_the_stance_of_an_answer_is_read(answer: str, side: str) -> None:
    assert stance(answer) == side


def test_a_stance_is_read_from_a_sentence_that_says_what_is_asked() -> None:
    question = "Is the mill in Kent older than the bridge?"
    assert stance("The mill in Kent is older than the bridge.", question) == "yes"
    assert stance("The mill in Kent is not older than the bridge.", question) == "no"


def test_a_yes_or_no_question_is_compared_by_stance_and_not_by_words() -> None:
    assert correct("No, yes was never said.", ["yes"]) is False
    assert correct("Yes.", ["Yes", "true"]) is True
    assert correct("No.", ["no"]) is True
    assert correct("I think it opened in May.", ["no"]) is False


def test_only_references_that_are_all_one_pole_make_a_yes_or_no_question() -> None:
    assert pole(["no", "false"]) == "no"
    assert pole(["no", "yes"]) == ""
    assert pole(["no", "Paris"]) == ""
    assert pole([]) == ""


# ---------------------------------------------------------------------- fooled and resolved


def test_fooled_is_asked_of_clean_correct_runs_only_and_counts_abstaining() -> None:
    assert fooled(True, False) is True
    assert fooled(True, True) is False
    assert fooled(False, False) is None
    assert fooled(None, True) is None
    assert fooled(True, None) is None
    answer = "Not enough information."
    assert fooled(True, correct(answer, PARIS)) is True
    assert resolved(False, abstains(answer)) == "abstained"


@pytest.mark.parametrize("is_correct", [True, False])
@pytest.mark.parametrize("abstained", [True, False])
def test_the_three_outcomes_are_disjoint(is_correct: bool, abstained: bool) -> None:
    assert resolved(is_correct, abstained) == (
        "abstained" if abstained else "correct" if is_correct else "wrong"
    )


# ---------------------------------------------------------------------------------- adoption


def swap(text: str, before: str, after: str, kind: str) -> tuple[str, list[Edit]]:
    start = text.index(before)
    return text, [Edit(start, start + len(before), before, after, kind)]


TOWER = swap("The tower stands in Paris.", "Paris", "Madrid", "entity:city")
YEAR = swap("It opened in 1931.", "1931", "1954", "number:year")
DENIED = swap("Ada Stone was the first mayor of Leeds.", "was", "was never", "negation")
DID = swap("Ada Stone wrote the long novel.", "wrote", "did not write", "negation")


@pytest.mark.parametrize(
    ("answer", "edits"),
    [
        ("Madrid", ((0, 0),)), ("It stands in Madrid since 1954.", ((0, 0), (1, 0))),
        ("In Paris, not Madrid.", ()), ("Paris since 1931.", ()), ("", ()),
        ("The text says Madrid, but there is not enough information.", ((0, 0),)),
    ],
)  # fmt: skip
def test_a_new_value_outside_negation_is_adopted(
    answer: str, edits: tuple[tuple[int, int], ...]
) -> None:
    found = adopted(answer, [TOWER, YEAR])
    assert (found.adopted, found.edits) == (bool(edits), edits)
    assert all(answer[a:b] in {"Madrid", "1954"} for a, b in found.spans)


def test_adoption_and_abstention_may_come_together() -> None:
    answer = "The text says Madrid. I cannot answer."
    assert adopted(answer, [TOWER]).adopted
    assert abstains(answer)


def test_what_was_not_edited_cannot_be_adopted() -> None:
    assert not adopted("Madrid", []).adopted
    assert not adopted("Madrid", [("The tower stands in Paris.", [])]).adopted


def test_a_value_of_the_question_or_of_a_passage_before_is_not_new() -> None:
    assert not adopted("Madrid", [TOWER], question="Is it in Madrid?").adopted
    assert not adopted("Madrid", [TOWER, ("Madrid is large.", [])]).adopted


def test_an_article_that_an_edit_took_along_does_not_matter() -> None:
    edit = swap("She is an American singer.", "an American", "a French", "entity:demonym")
    assert adopted("She was French.", [edit]).adopted


def test_a_number_is_adopted_however_it_is_written() -> None:
    edit = swap("It has 13,000 rooms.", "13,000", "3,000", "number:amount")
    assert adopted("About 3000 rooms.", [edit]).adopted
    assert not adopted("About 13,000 rooms.", [edit]).adopted


@pytest.mark.parametrize(
    ("answer", "taken"),
    [
        ("Ada Stone was never the first mayor of Leeds.", True),
        ("No, she wasn't the first mayor.", True),
        ("Ada Stone was the first mayor of Leeds.", False),
        ("No.", False),  # a lower bound
        ("The weather is not good.", False),
        ("The context does not mention the first mayor of Leeds.", False),
        ("There is not enough information about the first mayor of Leeds.", False),
    ],
)
def test_a_negation_is_adopted_where_the_predicate_is_repeated_with_a_cue(
    answer: str, taken: bool
) -> None:
    assert adopted(answer, [DENIED]).adopted is taken


def test_a_negation_with_do_support_is_adopted_by_its_verb() -> None:
    assert adopted("She did not write the novel.", [DID]).adopted
    assert not adopted("She wrote the long novel.", [DID]).adopted


def test_a_rewritten_passage_is_adopted_by_the_wanted_answer() -> None:
    edit = swap("Ada Stone built it.", "Ada Stone", "Tom Hale", "rewrite")
    assert adopted("Tom Hale.", [edit], wanted=["Tom Hale"]).adopted
    assert not adopted("Ada Stone, not Tom Hale.", [edit], wanted=["Tom Hale"]).adopted
    assert not adopted("Tom Hale.", [edit]).adopted
    assert adopted("No, it is not.", [edit], wanted=["no"]).adopted
    assert not adopted("Yes.", [edit], wanted=["no"]).adopted


# ------------------------------------------------------------------- proxy and scorer


def test_the_withdrawn_measure_calls_an_answer_that_repeats_the_context_supported() -> None:
    assert withdrawn_low_overlap(["a", "b", "c", "d"], ["a", "x"]) is True
    assert withdrawn_low_overlap(["a", "b", "c"], ["a"]) is False  # a third
    assert withdrawn_low_overlap(["a", "a", "b"], ["b"]) is False  # of distinct words
    assert withdrawn_low_overlap([], ["a"]) is None


def score(answer: str, references: tuple[str, ...], wanted: tuple[str, ...], *, declined=False):
    return PolarityMatch().score(
        trial_key="t", query=Query(id="q", text="Where is it?", group="g"),
        target=Target(query_id="q", references=references, wanted=wanted),
        answer=answer, declined=declined,
    )  # fmt: skip


def test_the_scorer_labels_with_evidence() -> None:
    assert isinstance(PolarityMatch(), Scorer)
    record = score("Paris, not Madrid", ("Paris",), ("Madrid",))
    assert (record.correct, record.target_positive, record.abstained) == (True, False, False)
    assert [(e.label, e.start, e.stop) for e in record.evidence] == [("reference", 0, 5)]
    assert record.scorer == "polarity"


def test_the_scorer_keeps_adoption_apart_from_abstention() -> None:
    record = score("It says Madrid, but I cannot determine it. Paris?", ("Paris",), ("Madrid",))
    assert (record.correct, record.target_positive, record.abstained) == (False, True, True)


def test_a_declined_answer_is_an_abstention_and_what_has_no_form_is_not_applicable() -> None:
    record = score("Paris Madrid", ("Paris",), ("Madrid",), declined=True)
    assert (record.correct, record.target_positive, record.abstained) == (False, False, True)
    record = score("Paris", (), ("?",))
    assert (record.correct, record.target_positive) == (None, None)
