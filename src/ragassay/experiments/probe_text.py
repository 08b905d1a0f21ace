"""The text work of the split-knowledge probe: names, kinds of answers, substitution. Pure.

Nothing here understands language: kinds are read off the shape of an answer, names off capital
letters. What slips through, the probe's reader has to reject.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from ragassay.matching import Token, find_spans, has_content, normalize_text, phrase, tokenize


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MONTHS = _words(
    "january february march april may june july august september october november december"
)
_NUMBER_WORDS = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety "
    "hundred thousand million billion dozen once twice"
)
_PARTICLES = _words("al bin da de del della der di dos du el ibn la le van von")
_CONNECTORS = _words("of the de la von van der du")
# Words that a question starts with, capitalized without being a name.
_OPENERS = _words(
    "a an the what which who whom whose when where why how is are was were do does did has have "
    "had can could in on at of for from by to with during after before between both if this that "
    "these those name give tell there it"
)
_PREPOSITIONS = _words("at by during from in inside near on outside through under with within")
# Words of names that have the shape of a person's.
_UNLIKE_PERSONS = _words(
    "academy airport army association avenue award bank band bay bridge brothers cathedral center "
    "centre championship church city club college company corporation council county cup empire "
    "festival football foundation government group hall high hospital institute international "
    "island islands lake league library limited medal mountain movement museum national new north "
    "northern ocean orchestra park party prize records republic river road royal saint school "
    "society south southern square stadium state states station street studios team television "
    "theater theatre town union united university valley war west western world"
)
_QUESTION_WORDS = {
    "who": "who", "whom": "who", "whose": "who", "when": "when", "where": "where", "how": "how",
    "what": "what", "which": "what",
}  # fmt: skip
_ARTICLES = ("a", "an", "the")
_SIGN = re.compile(r"[^\w\s.'\u2019-]")  # what no person's name has
_YEAR = re.compile(r"[12]\d{3}")
_ARTICLE_BEFORE = re.compile(r"(?<!\w)(a|an|the)[ \t]+\Z", re.IGNORECASE)
_SENTENCE_BEFORE = re.compile(r"(?:\A|[.!?][\"\u201d')\]]*[ \t\n]+)[\"\u201c'(\[]*\Z")
_PARENTHESIS = re.compile(r"\s*\([^()]*\)\s*\Z")
_LOOK_BACK = 12  # characters; longer than an article or the end of a sentence
_PAIRS = (("(", ")"), ("[", "]"), ("\u201c", "\u201d"))


def mentions(text: str, forms: Iterable[str]) -> bool:
    """Tell whether any of the forms occurs in a text as whole tokens.

    Examples
    --------
    >>> mentions("Oslo's harbor", ["Oslo"]), mentions("Carthage", ["art"])
    (True, False)
    """
    tokens = tokenize(text)
    return any(
        next(find_spans(tokens, phrase(form)), None) is not None for form in forms if form.strip()
    )


def title_forms(title: str) -> tuple[str, ...]:
    """List the names that a title gives: whole, and without what only tells it apart.

    That is a parenthesis at the end ("Creed (band)"), and what follows a comma where two words
    or more stand before it ("Masons' Hall, London"); character references are resolved too.

    Examples
    --------
    >>> title_forms("Creed (band)")
    ('Creed (band)', 'Creed')
    """
    forms = {title: None}
    for known in (title, html.unescape(title)):
        bare = _PARENTHESIS.sub("", known)
        forms |= dict.fromkeys((known, bare))
        before, comma, _ = bare.partition(",")
        if comma and len(tokenize(before)) > 1:
            forms[before] = None
    return tuple(form for form in forms if has_content(form))


def names_in(question: str) -> tuple[str, ...]:
    """List the names in a question: runs of capitalized words, joined over "of" and the like.

    The word that opens the question is no name if it is one of a list of function words. A
    script without capital letters has no names here.

    Examples
    --------
    >>> names_in("Who lost the Fight of the Century against Joe Frazier in 1971?")
    ('Fight of the Century', 'Joe Frazier')
    """
    found: dict[str, None] = {}
    run: list[Token] = []
    for token in tokenize(question):
        gap = question[run[-1].stop : token.start] if run else ""
        if run and gap.strip(" -&."):
            found |= _named(question, run)
            run = []
        capital = question[token.start].isupper()
        goes_on = capital or token.text in _CONNECTORS
        if goes_on if run else capital and token.text not in _OPENERS:
            run.append(token)
        elif run:
            found |= _named(question, run)
            run = []
    return tuple(found | _named(question, run))


def kind_of(answer: str) -> str:
    """Read the kind of an answer off its shape.

    Returns
    -------
    str
        ``year``; ``date`` (a month with a year); ``day`` (a month and a day without a year);
        ``number``; ``place`` (names parted by a comma); ``person`` (two to four capitalized
        words, none of which is usual in other names); ``word`` (a single capitalized word);
        ``name`` (whatever else has a capital letter); ``adjunct`` (starts with a preposition);
        ``phrase`` (the rest).

    Examples
    --------
    >>> [kind_of(each) for each in ("1941", "2 March 1972", "six", "Bath, Maine", "Ana Roe")]
    ['year', 'date', 'number', 'place', 'person']
    >>> [kind_of(each) for each in ("Oslo", "Oslo University", "in the hills", "a novelist")]
    ['word', 'name', 'adjunct', 'phrase']
    """
    tokens = tokenize(answer)
    words = [token.text for token in tokens]
    capital = [answer[token.start].isupper() for token in tokens]
    digits = any(character.isdigit() for character in answer)
    if len(words) == 1 and _YEAR.fullmatch(words[0]) and "," not in answer:
        return "year"
    if digits and not _MONTHS.isdisjoint(words):
        return "date" if any(_YEAR.fullmatch(word) for word in words) else "day"
    if words and words[0] in _PREPOSITIONS:
        return "adjunct"
    if words and not any(capital[1:]) and _is_number(words[0]):
        return "number"
    if not any(capital):
        return "phrase"
    if len(words) == 1:
        return "word"
    proper = not digits and all(
        large or word in _PARTICLES for large, word in zip(capital, words, strict=True)
    )
    if proper and "," in answer:
        return "place"
    other = len(words) > 4 or not _UNLIKE_PERSONS.isdisjoint(words) or _SIGN.search(answer)
    return "person" if proper and not other else "name"


def asks_for(question: str) -> tuple[str, str]:
    """Return the question word (``who``, ``when``, ``where``, ``how``, ``what``) and the next.

    Examples
    --------
    >>> asks_for("In which city was she born?"), asks_for("Whose harbor is it?")
    (('what', 'city'), ('who', 'harbor'))
    """
    words = [token.text for token in tokenize(question)]
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in _QUESTION_WORDS:
            return _QUESTION_WORDS[word], following
    return "what", ""


def substitute(text: str, references: Sequence[str], target: str) -> str:
    """Put the target where any of the references stands, as whole tokens; the rest stays.

    The target keeps its spelling, but for a capital letter where it starts a sentence. An
    article before a reference stays ("a" and "an" follow the sound), except where the target
    brings its own, or where it was part of a name ("The Dark Tower"). A quotation mark or
    bracket whose partner goes away goes too.

    Examples
    --------
    >>> substitute("It was an error; Error is human.", ["error"], "success")
    'It was a success; success is human.'
    >>> substitute("The Dark Tower is read.", ["The Dark Tower"], "Ulysses")
    'Ulysses is read.'
    """
    pieces: list[str] = []
    at = 0
    for start, stop, titled in _spans(text, references):
        start, stop = _balanced(text, start, stop)
        before, article = _article(text[at : max(start, at)], target, titled)
        begin = at + len(before)
        opens = _SENTENCE_BEFORE.search(text[max(0, begin - _LOOK_BACK) : begin]) is not None
        capital = opens and text[begin : begin + 1].isupper() and not article
        pieces += [before, article, target[:1].upper() + target[1:] if capital else target]
        at = stop
    return "".join([*pieces, text[at:]])


# --------------------------------------------------------------------------------- internals


def _is_number(word: str) -> bool:
    return word in _NUMBER_WORDS or word.lstrip("-")[:1].isdigit()


def _named(question: str, run: list[Token]) -> dict[str, None]:
    while run and run[-1].text in _CONNECTORS:
        run = run[:-1]
    return {question[run[0].start : run[-1].stop]: None} if run else {}


def _spans(text: str, references: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Yield the places of all references, overlapping ones as one, and whether it is a title."""
    tokens = tokenize(text)
    found: dict[tuple[int, int], bool] = {}
    for reference in references:
        first = reference.split(maxsplit=1)[:1]
        titled = bool(first) and first[0].lower() in _ARTICLES and first[0][0].isupper()
        tail = _tail(reference)
        for start, stop in find_spans(tokens, phrase(reference)):
            span = (start, stop + len(tail) if text.startswith(tail, stop) else stop)
            found[span] = found.get(span, False) or titled
    open_start, open_stop, open_titled = -1, -1, False
    for (start, stop), titled in sorted(found.items()):
        if start < open_stop:
            open_stop, open_titled = max(stop, open_stop), open_titled or titled
            continue
        if open_stop >= 0:
            yield open_start, open_stop, open_titled
        open_start, open_stop, open_titled = start, stop, titled
    if open_stop >= 0:
        yield open_start, open_stop, open_titled


def _tail(reference: str) -> str:
    """Return what ends a reference behind its last word ("Go!"), a full stop aside."""
    tokens = tokenize(reference)
    return reference[tokens[-1].stop :].strip().rstrip(".") if tokens else ""


def _balanced(text: str, start: int, stop: int) -> tuple[int, int]:
    """Widen a span over a quotation mark or bracket whose partner lies in it."""
    inside = text[start:stop]
    if inside.count('"') % 2:
        if text[stop : stop + 1] == '"':
            stop += 1
        elif start and text[start - 1] == '"':
            start -= 1
    for opening, closing in _PAIRS:
        surplus = inside.count(opening) - inside.count(closing)
        if surplus > 0 and text[stop : stop + 1] == closing:
            stop += 1
        elif surplus < 0 and start and text[start - 1] == opening:
            start -= 1
    return start, stop


def _article(before: str, target: str, titled: bool) -> tuple[str, str]:
    """Split an article off the text before a reference, and write the one that fits."""
    match = _ARTICLE_BEFORE.search(before[-_LOOK_BACK:])
    if match is None:
        return before, ""
    found = match[1]
    head, tail = before[: len(before) - len(match[0])], match[0][len(found) :]
    first = normalize_text(target).partition(" ")[0]
    own = first in _ARTICLES and len(tokenize(target)) > 1
    if own or (titled and not target[:1].islower()):
        return head, ""
    if found.lower() == "the":
        return head, found + tail
    fitting = "an" if first[:1] in tuple("aeiou") else "a"
    return head, (fitting.capitalize() if found[0].isupper() else fitting) + tail
