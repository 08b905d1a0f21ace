"""What goes to an OpenAI-compatible server and what comes back, without any connection."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from ragassay.types import Generation, Json, Message

JsonSchemaMode = Literal["strict", "object", "off"]


def messages_out(messages: Sequence[Message], *, system_as_user: bool) -> list[dict[str, str]]:
    """Give messages as the server wants them: valid Unicode, a lone surrogate as U+FFFD.

    ``system_as_user`` puts the system text in front of the first user turn.
    """
    if system_as_user:
        messages = _without_system(messages)
    return [{"role": message.role, "content": _valid(message.content)} for message in messages]


def response_format(
    schema: Mapping[str, Json] | None, mode: JsonSchemaMode
) -> dict[str, Any] | None:
    """How the server is told what form the reply must have; None: it is not told.

    Examples
    --------
    >>> response_format({"type": "object"}, "object")
    {'type': 'json_object'}
    """
    if schema is None or mode == "off":
        return None
    if mode == "object":
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": schema},
    }


def read_reply(reply: Any, seconds: float, *, structured: bool) -> Generation | str:
    """Read a chat completion; a text says what is wrong with it.

    With ``structured`` (the request had a schema), a refusal or a filtered reply is what the
    model said: its text, perhaps empty, follows no schema and cannot pass for an answer.
    """
    choices = getattr(reply, "choices", None)
    if not isinstance(choices, list):
        return "its reply is not a chat completion"
    if not choices:
        return "its reply has no choices"
    finish = getattr(choices[0], "finish_reason", None)
    message = getattr(choices[0], "message", None)
    text = getattr(message, "content", None)
    refusal = getattr(message, "refusal", None)
    if structured and not text and (isinstance(refusal, str) or finish == "content_filter"):
        text, finish = refusal or "", None
    elif finish == "content_filter" and not text:
        return "its content filter withheld the answer"
    if not isinstance(text, str):
        why = f"; it refused: {one_line(refusal)}" if isinstance(refusal, str) else ""
        return f"its reply has no content (finish_reason {finish!r}){why}"
    usage = getattr(reply, "usage", None)
    return Generation(
        text=text,
        finish=finish if finish in ("stop", "length") else "unknown",
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        seconds=seconds,
    )


def withheld(error: Exception, *, structured: bool) -> bool:
    """Tell whether a content filter refused the whole request, and that is the model's reply."""
    return structured and getattr(error, "code", None) == "content_filter"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Read ``Retry-After`` (seconds or a date) and ``retry-after-ms``, in seconds."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - time.time()
            except (TypeError, ValueError, OverflowError):
                continue
        if seconds == seconds:  # a header may say "nan"
            return max(seconds, 0.0)
    return None


def one_line(text: str) -> str:
    """Put a text of the server on one line of at most 300 characters."""
    return " ".join(text.split())[:300]


def _without_system(messages: Sequence[Message]) -> list[Message]:
    system = "\n\n".join(m.content for m in messages if m.role == "system")
    others = [m for m in messages if m.role != "system"]
    first = next((i for i, m in enumerate(others) if m.role == "user"), None)
    if not system:
        return others
    if first is None:
        return [Message(role="user", content=system), *others]
    others[first] = Message(role="user", content=f"{system}\n\n{others[first].content}")
    return others


def _valid(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _count(usage: Any, name: str) -> int:
    value = getattr(usage, name, None)
    return value if isinstance(value, int) else 0
