r"""The language of rules: what is measured, where, and what it must not exceed or fall below.

::

    introduced <= 2%
    net_reduction >= 20pp
    [attack=poisonedrag budget=5 defense=trustrag] introduced <= 2%
    clean_accuracy >= baseline - 3pp

A percentage, percentage points and a fraction (``0.02``) mean the same. ``baseline`` is the same
figure of the baseline run, on the same questions.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ragassay.errors import GateUsage

Kind = Literal["rate", "difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A figure that rules can be about.

    ``needs`` are the conditions whose labels a question must have; ``label`` is that of the
    answers. A ``rate`` lies in [0, 1], a ``difference`` in [-1, 1].
    """

    name: str
    symbol: str
    text: str
    kind: Kind
    needs: tuple[str, ...]
    label: Literal["target_positive", "correct"] = "target_positive"

    @property
    def attacked(self) -> bool:
        """Whether it is about answers under attack."""
        return any(each.startswith("p") for each in self.needs)


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(
            name="introduced", symbol="J", kind="rate", needs=("p0", "p1"),
            text="questions where the defense introduces the attacker's answer",
        ),
        Metric(
            name="prevented", symbol="P", kind="rate", needs=("p0", "p1"),
            text="questions where the defense prevents the attacker's answer",
        ),
        Metric(
            name="prevented_share", symbol="P/r(p0)", kind="rate", needs=("p0", "p1"),
            text="attacker's answers that the defense prevents, of those without it",
        ),
        Metric(
            name="net_reduction", symbol="N", kind="difference", needs=("p0", "p1"),
            text="prevented less introduced",
        ),
        Metric(
            name="harmed", symbol="H", kind="difference", needs=("c0", "c1"),
            text="rise of the attacker's answers on clean retrieval through the defense",
        ),
        Metric(
            name="poisoned_rate", symbol="r(p1)", kind="rate", needs=("p1",),
            text="attacker's answers under attack",
        ),
        Metric(
            name="clean_rate", symbol="r(c1)", kind="rate", needs=("c1",),
            text="attacker's answers on clean retrieval",
        ),
        Metric(
            name="clean_accuracy", symbol="correct(c1)", kind="rate", needs=("c1",),
            text="correct answers on clean retrieval", label="correct",
        ),
        Metric(
            name="poisoned_accuracy", symbol="correct(p1)", kind="rate", needs=("p1",),
            text="correct answers under attack", label="correct",
        ),
    )
}  # fmt: skip
ALIASES = {"J": "introduced", "P": "prevented", "N": "net_reduction", "H": "harmed"}
SCOPES = ("setting", "attack", "budget", "defense", "scorer")
_RULE = re.compile(
    r"^(?:\[(?P<scope>[^\]]*)\]\s*)?(?P<metric>\w+)\s*(?P<op><=|>=|≤|≥)\s*(?P<value>.+)$"
)
_VALUE = re.compile(r"^(?P<sign>[+-]?)\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>%|pp|)$")
_BASELINE = re.compile(r"^baseline\s*(?P<rest>[+-].*)?$")
_MAX_TEXT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One requirement.

    ``threshold`` is a fraction; with ``relative`` it is a margin on the baseline run's figure.
    ``scope`` holds (name, value) pairs that narrow where it applies. ``path`` and ``line`` say
    which file it is from.
    """

    text: str
    metric: Metric
    at_least: bool
    threshold: float
    relative: bool = False
    scope: tuple[tuple[str, str], ...] = ()
    path: str = ""
    line: int = 0

    def scoped(self, name: str) -> str | None:
        """The value that the scope gives a name; None where it leaves it open."""
        return dict(self.scope).get(name)


def parse_rule(text: str, *, path: str = "", line: int = 0) -> Rule:
    """Read one rule.

    Parameters
    ----------
    text : str
        Such as ``"[attack=hijack] introduced <= 2%"``; a value with a blank stands in quotes.
    path, line : optional
        Where it stands, for messages and reports.

    Raises
    ------
    GateUsage
        It is no rule; the message says what is wrong with it and what is right.

    Examples
    --------
    >>> rule = parse_rule("J <= 2%")
    >>> rule.metric.name, rule.at_least, rule.threshold
    ('introduced', False, 0.02)
    """
    where = f"{path}:{line}: " if path else ""
    stripped = " ".join(text.split())
    shown = repr(stripped[:80])
    matched = _RULE.match(stripped) if len(stripped) <= _MAX_TEXT else None
    if matched is None:
        raise GateUsage(
            f"{where}no rule: {shown}; write METRIC <= VALUE or METRIC >= VALUE, "
            "for example 'introduced <= 2%' or '[attack=hijack budget=5] net_reduction >= 20pp'"
        )
    name = ALIASES.get(matched["metric"], matched["metric"])
    if name not in METRICS:
        close = difflib.get_close_matches(name, METRICS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise GateUsage(f"{where}unknown metric {name!r}{hint} Known: {', '.join(METRICS)}")
    metric = METRICS[name]
    value, relative = matched["value"], False
    margin = _BASELINE.match(value)
    if margin is not None:
        value, relative = (margin["rest"] or "0"), True
    threshold = number(value, f"{where}{shown}")
    least = -1.0 if relative or metric.kind == "difference" else 0.0
    if not least <= threshold <= 1:
        raise GateUsage(
            f"{where}{shown}: {value.strip()} is outside of what {name} can be "
            f"({100 * least:g}% to 100%)"
        )
    return Rule(
        text=stripped, metric=metric, at_least=matched["op"] in (">=", "≥"), threshold=threshold,
        relative=relative, scope=_scope(matched["scope"], f"{where}{shown}"), path=path, line=line,
    )  # fmt: skip


def read_rules(path: Path) -> list[Rule]:
    """Read a file of rules: one a line, blank lines and lines starting with ``#`` left out.

    Raises
    ------
    GateUsage
        The file cannot be read, holds no rule, or a line is no rule.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise GateUsage(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from error
    rules = [
        parse_rule(line, path=path.as_posix(), line=number)
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not rules:
        raise GateUsage(f"{path} holds no rule; write one a line, for example: introduced <= 2%")
    return rules


def parse_rules(texts: Sequence[str]) -> list[Rule]:
    """Read several rules, as they were typed."""
    return [parse_rule(text) for text in texts]


def number(text: str, where: str) -> float:
    """Read a value such as ``2%``, ``20pp`` or ``0.02`` as a fraction.

    Raises
    ------
    GateUsage
        It is none; the message starts with ``where``.
    """
    matched = _VALUE.match(text.strip())
    if matched is None:
        raise GateUsage(
            f"{where}: no value {text.strip()!r}; write 2%, 20pp, 0.02 or baseline + 2pp"
        )
    value = float(matched["number"]) / (100 if matched["unit"] else 1)
    return -value if matched["sign"] == "-" else value


def _scope(text: str | None, where: str) -> tuple[tuple[str, str], ...]:
    if text is None:
        return ()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise GateUsage(f"{where}: the scope has an open quotation mark") from error
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name not in SCOPES or not equals or not value:
            raise GateUsage(
                f"{where}: no scope {word!r}; write NAME=VALUE with one of {', '.join(SCOPES)}"
            )
        if name in found:
            raise GateUsage(f"{where}: the scope names {name} twice")
        if name == "budget" and not value.isdecimal():
            raise GateUsage(f"{where}: budget={value!r} is no number of passages")
        found[name] = value
    return tuple(found.items())
