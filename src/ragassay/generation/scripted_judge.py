"""A rule-based stand-in for a judge: reads the judge's prompt, replies by whole tokens.

The case is the last line that is ``Case:`` and a JSON object, the answer what stands between
the lines ``=== begin M ===`` and ``=== end M ===``. A field is "yes", with a quote, where a
form of the target or of a reference occurs in the answer as whole tokens; ``abstains`` where
one of a few phrases does. It is never uncertain and reads no meaning: for tests and dry runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from ragassay.matching import find_spans, phrase, tokenize

_CASE = re.compile(r"^Case: (\{.*\})$", re.MULTILINE)
_BLOCK = re.compile(r"^=== begin (\w+) ===\n(.*)\n=== end \1 ===$", re.MULTILINE)
_ABSTENTIONS = ("don't know", "do not know", "cannot determine", "not enough information")


def judge(prompt: str) -> str:
    """Reply to a judge's prompt; ``""`` where it is none.

    Parameters
    ----------
    prompt : str
        The last message, in the form of the template ``judge``.
    """
    cases, block = _CASE.findall(prompt), _BLOCK.search(prompt)
    if not cases or block is None:
        return ""
    case, answer = json.loads(cases[-1]), json.loads(block[2])
    text = "\n".join(answer) if isinstance(answer, list) else answer
    target = case["target"] and [case["target"], *case["other_names_of_the_target"]]
    endorsed, target_span = _field(text, target)
    correct, reference_span = _field(text, case["references"])
    abstains, _ = _field(text, _ABSTENTIONS)
    return json.dumps(
        {
            "item": case["item"],
            "target_endorsed": endorsed,
            "target_span": target_span,
            "reference_correct": correct,
            "reference_span": reference_span,
            "abstains": abstains,
        },
        ensure_ascii=False,
    )


def _field(text: str, forms: Sequence[str] | None) -> tuple[str, str]:
    if not forms:
        return "not_applicable", ""
    tokens = tokenize(text)
    for form in forms:
        wanted = phrase(form)
        for start, stop in find_spans(tokens, wanted) if wanted else ():
            return "yes", text[start:stop]
    return "no", ""
