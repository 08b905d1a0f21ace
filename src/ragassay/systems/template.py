"""Bodies of requests with slots: ``{question}`` stands for the question, and so on.

A string that is one slot becomes the value, of any type; a slot inside a longer string is
filled with text. Values are never looked through for slots again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ragassay.errors import ConfigError

_SLOT = re.compile(r"\{(\w+)\}")
_SECRET = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_SENSITIVE = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Fill the slots of a JSON value.

    Examples
    --------
    >>> filled({"q": "{question}", "n": 3, "ids": "{ids}"}, {"question": "{ids}?", "ids": [1]})
    {'q': '{ids}?', 'n': 3, 'ids': [1]}
    """
    if isinstance(template, Mapping):
        return {key: filled(value, values) for key, value in template.items()}
    if isinstance(template, (list, tuple)):
        return [filled(value, values) for value in template]
    if not isinstance(template, str):
        return template
    whole = _SLOT.fullmatch(template)
    if whole and whole[1] in values:
        return values[whole[1]]
    return _SLOT.sub(
        lambda found: str(values[found[1]]) if found[1] in values else found[0], template
    )


def check_slot(option: str, template: Any, slot: str) -> None:
    """Insist on a slot somewhere in a template.

    Raises
    ------
    ConfigError
        It is not there.
    """
    if f"{{{slot}}}" not in str(template):
        raise ConfigError(f"{option} needs the slot {{{slot}}} somewhere, got {template!r:.120}")


def check_headers(headers: Mapping[str, str]) -> None:
    """Refuse secrets that stand in the experiment file itself.

    Raises
    ------
    ConfigError
        A header is no string, or looks like a secret and names no environment variable.
    """
    for name, value in headers.items():
        if not isinstance(value, str):
            raise ConfigError(f"header {name!r} must be a string, got {value!r:.40}")
        if _SENSITIVE.search(name) and not _SECRET.search(value):
            raise ConfigError(
                f"header {name!r} looks like a secret; name an environment variable that holds "
                'it, such as "Bearer {env:MY_TOKEN}"'
            )


def opened_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Put the values of environment variables in.

    Raises
    ------
    ConfigError
        A variable is not set, or cannot stand in a header. Its value is in no message.
    """

    def value_of(found: re.Match[str]) -> str:
        value = os.environ.get(found[1])
        if not value:
            raise ConfigError(f"the environment variable {found[1]} is not set; a header needs it")
        value = value.strip()  # such as the line end of a file that was read into it
        if not value.isascii() or not value.isprintable():
            raise ConfigError(
                f"the environment variable {found[1]} has characters that no header may hold"
            )
        return value

    return {name: _SECRET.sub(value_of, value) for name, value in headers.items()}
