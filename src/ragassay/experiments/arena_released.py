"""What the settings say of released documents: where they lie, which attackers, their digest."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ragassay import canon
from ragassay.arena.released import ATTACKERS, data_folder
from ragassay.config import ArenaPart
from ragassay.errors import ConfigError


def resolve_arena(file: dict[str, Any], part: ArenaPart | None, base: Path) -> None:
    """Put the content of released files in the place of their path, in resolved settings.

    A run without an arena says nothing of one.
    """
    if part is None:
        del file["arena"]
    elif part.released:
        file["arena"]["released"] = released_identity(base, part)
        del file["attack"]  # the released ones compete


def released_path(base: Path, part: ArenaPart) -> Path:
    """The folder of the released files.

    Raises
    ------
    DataError
        There is no such folder, or it does not hold them.
    """
    return data_folder(base / part.released)


def released_identity(base: Path, part: ArenaPart) -> str:
    """Digest of the released files that an arena reads; where they lie does not count."""
    folder = released_path(base, part)
    names = ["arena-nq.jsonl", "clean-contexts-nq.jsonl"]
    names += [f"attack-nq-{name}.jsonl.gz" for name in ATTACKERS]
    content = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names]
    return canon.digest(content)[:16]


def released_attackers(part: ArenaPart) -> tuple[str, ...]:
    """The released attackers that compete.

    Raises
    ------
    ConfigError
        ``only`` names none of them.
    """
    unknown = sorted(set(part.only) - set(ATTACKERS))
    if unknown:
        raise ConfigError(
            f"arena.only: there is no released attacker {unknown[0]!r}; known: "
            f"{', '.join(ATTACKERS)}"
        )
    return part.only or ATTACKERS
