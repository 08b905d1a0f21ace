"""InstructRAG-ICL: two worked examples show how to tell helpful documents from others.

Source: Wei et al. 2025, "InstructRAG: Instructing Retrieval-Augmented Generation via
Self-Synthesized Rationales" (ICLR), the variant with examples in the prompt. PoisonArena
("competing poisoning attacks", 2025) runs it as a defense with two examples and a JSON reply.

Deviations: instruction and both examples are our own wording; ``path`` takes the examples of a
published file instead. No example shows a planted document, as published. The reply is read by a
JSON parser at every place where an object may begin, so that braces within the rationale do no
harm; where it was cut off, the field of the answer alone is read. A reply without an answer is
kept whole as the answer, and the trace says ``parse = "failed"``: the released code puts an
error text in its place, which no attack can match. Decoding is the experiment's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from ragassay import prompts
from ragassay.canon import digest
from ragassay.defenses.prompt_control import check_max_tokens, check_slots
from ragassay.errors import ConfigError
from ragassay.plugins import Tools
from ragassay.types import Hit, Message, Query, Verdict

SLOTS = frozenset({"documents", "question"})
_FIELD = re.compile(r'"final[_ ]?answer"\s*:\s*("(?:[^"\\]|\\.)*"|[^\s"{}\[\],]+)', re.IGNORECASE)
_MAX_OBJECTS = 200  # places where an object may begin that are tried
_MAX_BYTES = 1_000_000  # of a file of examples


class Reply(NamedTuple):
    """What was read from a reply, and how: a JSON object, one field of it, or not at all."""

    answer: str
    rationale: str
    parse: Literal["json", "field", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructRAG:
    """Answer after two worked examples that weigh documents before they answer (InstructRAG-ICL).

    Parameters
    ----------
    prompt : str
        Built-in template or file, with the slots ``documents`` and ``question`` in its last turn;
        what stands between its system turn and that one are the examples.
    path : str
        A file of published examples that take their place: a JSON list of objects with
        ``question``, ``answers``, ``rationale`` and ``ctxs`` (each with ``text`` and maybe
        ``title``).
    max_tokens : int, optional
        Longest reply in tokens, the rationale included; absent: the experiment's setting.
    """

    version: ClassVar[str] = "1"
    prompt: str = "instructrag"
    path: str = ""
    max_tokens: int | None = 256

    def __post_init__(self) -> None:
        check_slots(self.prompt, SLOTS)
        check_max_tokens(self.max_tokens)
        if self.path:
            read_examples(Path(self.path))

    @property
    def identity(self) -> str:
        """Name, version, and digest of prompt, examples and limit."""
        examples = [] if not self.path else [m.content for m in read_examples(Path(self.path))]
        options = [prompts.load(self.prompt).digest, examples, self.max_tokens]
        return f"instructrag:{digest(['defense', self.version, options])[:16]}"

    def model_calls(self, k: int) -> int:
        """One call for a context of any size."""
        return 1

    def template_characters(self) -> int:
        """The characters around documents and question, the examples included."""
        template = prompts.load(self.prompt)
        messages = template.render(dict.fromkeys(template.slots, ""))
        if self.path:
            messages = (*messages, *read_examples(Path(self.path)))
        return sum(len(message.content) for message in messages)

    def apply(self, query: Query, hits: Sequence[Hit], tools: Tools) -> Verdict:
        """Keep all hits and answer from them; of the reply, the final answer counts."""
        documents = numbered([tools.passage_text(hit) for hit in tools.ordered(hits)])
        messages = prompts.load(self.prompt).render(
            {"documents": documents, "question": query.text}
        )
        if self.path:
            system = [m for m in messages if m.role == "system"]
            messages = (*system, *read_examples(Path(self.path)), messages[-1])
        (raw,) = tools.ask([messages], max_tokens=self.max_tokens)
        reply = read_reply(raw)
        return Verdict(
            kept=tuple(hits),
            answer=reply.answer,
            trace={"raw": raw, "parse": reply.parse, "rationale": reply.rationale},
        )


def read_reply(text: str) -> Reply:
    r"""Read the final answer from a reply.

    The last JSON object with a final answer counts. Failing that, the field alone is looked for;
    failing that, the whole text is the answer.

    Examples
    --------
    >>> read_reply('Sure: {"rationale": "see {1} and {2}", "final_answer": "Rome"}')
    Reply(answer='Rome', rationale='see {1} and {2}', parse='json')
    >>> read_reply('{"final_answer": "Rome", "rationale": "because').parse
    'field'
    >>> read_reply("It is Rome.")
    Reply(answer='It is Rome.', rationale='', parse='failed')
    """
    found: Reply | None = None
    decoder = json.JSONDecoder(strict=False)
    start, tried = text.find("{"), 0
    while start >= 0 and tried < _MAX_OBJECTS:
        tried += 1
        end = start + 1
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value = None
        answer = _field(value, "finalanswer")
        if answer is not None:
            found = Reply(answer, _field(value, "rationale") or "", "json")
        start = text.find("{", end)
    if found is not None:
        return found
    fields = _FIELD.findall(text)
    if fields:
        return Reply(_unquoted(fields[-1]), "", "field")
    return Reply(text, "", "failed")


def read_examples(path: Path) -> tuple[Message, ...]:
    """Read published examples as turns of a prompt.

    Raises
    ------
    ConfigError
        The file cannot be read, or an example lacks a part.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{path}: examples of more than {_MAX_BYTES:,} bytes are not read")
        rows = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"examples {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"examples {path} are no JSON in UTF-8: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"examples {path} must be a list of at least one object")
    turns: list[Message] = []
    for number, row in enumerate(rows, start=1):
        try:
            texts = [
                f"{each['title']}\n{each['text']}" if each.get("title") else str(each["text"])
                for each in row["ctxs"]
            ]
            question, rationale, answer = row["question"], row["rationale"], row["answers"][0]
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ConfigError(
                f"examples {path}: number {number} needs question, answers, rationale and ctxs "
                f"with a text each ({type(error).__name__}: {error})"
            ) from error
        reply = json.dumps(
            {"rationale": str(rationale), "final_answer": str(answer)}, ensure_ascii=False
        )
        turns += [
            Message(role="user", content=f"{numbered(texts)}\n\nQuestion: {question}"),
            Message(role="assistant", content=reply),
        ]
    return tuple(turns)


def numbered(texts: Sequence[str]) -> str:
    """Passages as numbered documents, one after the other."""
    return "\n".join(f"Document {i}: {text}" for i, text in enumerate(texts, start=1))


def _field(value: Any, name: str) -> str | None:
    """A field of an object as text, whatever the spelling of its name."""
    if not isinstance(value, dict):
        return None
    for key, found in value.items():
        if re.sub(r"[\s_-]", "", key).lower() != name:
            continue
        if isinstance(found, str):
            return found.strip()
        if isinstance(found, (int, float)):
            return json.dumps(found)
    return None


def _unquoted(found: str) -> str:
    if not found.startswith('"'):
        return found
    try:
        return str(json.loads(found, strict=False)).strip()
    except ValueError:
        return found.strip('"').strip()
