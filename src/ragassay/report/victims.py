"""Victims and encoding arms: the settings of a run beside each other, a row for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragassay.report import grids
from ragassay.report.grids import Block, Grid
from ragassay.report.parts import Part
from ragassay.report.text import (
    NO_WIDTH_NOTE,
    NOT_ESTIMABLE,
    bracket,
    label_share,
    place,
    points,
    visible,
)

MAX_OPEN = 2
NOTE = (
    "A setting is a victim, a data set and an encoding arm. r(c0) and r(p0): target-positive "
    "without a defense, clean and under attack. N: net reduction by each defense, in percentage "
    "points, above 0 is good; read it with J and H among the effects. "
    f"{NO_WIDTH_NOTE}"
)


def wanted(summary: Mapping[str, Any]) -> bool:
    """Whether there are several settings, and an attack or a defense to compare them by."""
    return grids.several(summary) and any(block.budget for block in grids.blocks(summary))


def victims(summary: Mapping[str, Any], scorer: str, charts: bool) -> list[Part]:
    """A table for each attack and budget, the largest budgets first."""
    found: dict[tuple[str, int], list[Block]] = {}
    for block in grids.blocks(summary, scorer):
        if block.budget:
            found.setdefault((block.attack, block.budget), []).append(block)
    order = sorted(found, key=lambda pair: -pair[1])
    tables = [(place(*pair), table(found[pair])) for pair in order]
    return [
        Part(
            heading=title,
            note=NOTE if not number else "",
            grids=(grid,),
            folded=number >= MAX_OPEN,
        )
        for number, (title, grid) in enumerate(tables)
    ]


def table(blocks: Sequence[Block]) -> Grid:
    """A row for each setting: level without a defense, and N of every defense."""
    defenses = list(dict.fromkeys(c["defense"] for block in blocks for c in block.defended))
    return Grid(
        title=place(blocks[0].attack, blocks[0].budget),
        columns=("Setting", "r(c0)", "r(p0)", *(f"N, {visible(name)}" for name in defenses)),
        rows=tuple(
            (
                visible(block.setting),
                *(_level(block, condition) for condition in ("c0", "p0")),
                *(_net(block, name) for name in defenses),
            )
            for block in blocks
        ),
    )


def _level(block: Block, condition: str) -> str:
    label = block.label(condition)
    return "not run" if label is None else label_share(label)


def _net(block: Block, defense: str) -> str:
    cell = next((cell for cell in block.defended if cell["defense"] == defense), None)
    if cell is None:
        return "not run"
    if not cell["estimable"]:
        return NOT_ESTIMABLE
    net = cell["effects"]["N"]
    return f"{points(net)} {bracket(net)}, n = {cell['n']}"
