"""The gate in pytest: a ``ragassay`` fixture, and a marker of the same name that sets it up.

::

    import pytest

    @pytest.mark.ragassay("runs/demo", rules=["introduced <= 2%", "net_reduction >= 20pp"])
    def test_the_defense_holds(ragassay):
        ragassay.check()

Importing this module imports neither numpy nor anything else of weight: a test session that does
not use the fixture pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ragassay.gate.evaluation import GateResult

_OPTIONS = ("run", "rules", "baseline", "level", "icc", "max_dropped", "undecided")
_UNDECIDED = ("fail", "skip", "xfail")


class Gate:
    """Holds run folders against rules; relative folders are taken from pytest's root folder."""

    def __init__(self, root: Path, options: dict[str, Any]) -> None:
        self._root = root
        self._options = options

    def result(
        self,
        run: str | PathLike[str] | None = None,
        rules: Sequence[str] | None = None,
        **options: Any,
    ) -> GateResult:
        """Evaluate the rules; what is not given comes from the marker.

        Parameters
        ----------
        run : path, optional
            The run folder.
        rules : sequence of str, optional
            What is required.
        **options
            ``baseline``, ``level``, ``icc``, ``max_dropped`` of
            :func:`ragassay.gate.evaluation.evaluate`.

        Raises
        ------
        GateUsage
            No run or rule is given, or one is wrong.
        """
        from ragassay.errors import GateUsage
        from ragassay.gate.evaluation import evaluate

        merged = {**self._options, **options}
        merged.pop("undecided", None)
        folder = run if run is not None else merged.pop("run", None)
        wanted = rules if rules is not None else merged.pop("rules", None)
        merged = {k: v for k, v in merged.items() if k not in ("run", "rules")}
        if folder is None:
            raise GateUsage("no run folder: give it to the marker, or to the fixture")
        if isinstance(wanted, str):
            wanted = [wanted]
        if merged.get("baseline") is not None:
            merged["baseline"] = self._root / merged["baseline"]
        return evaluate(self._root / folder, list(wanted or ()), **merged)

    def check(
        self,
        run: str | PathLike[str] | None = None,
        rules: Sequence[str] | None = None,
        **options: Any,
    ) -> GateResult:
        """Evaluate, and fail the test where a rule fails or, by default, is undecided.

        ``undecided`` is ``"fail"``, ``"skip"`` or ``"xfail"``; the other arguments are those of
        :meth:`result`.
        """
        from ragassay.errors import GateUsage

        undecided = options.pop("undecided", self._options.get("undecided", "fail"))
        if undecided not in _UNDECIDED:
            raise GateUsage(f"undecided={undecided!r}; known: {', '.join(_UNDECIDED)}")
        found = self.result(run, rules, **options)
        text = _told(found)
        if found.verdict == "fail" or (found.verdict == "undecided" and undecided == "fail"):
            pytest.fail(text, pytrace=False)
        if found.verdict == "undecided":
            (pytest.skip if undecided == "skip" else pytest.xfail)(text)
        return found


def _told(result: GateResult) -> str:
    from ragassay.report import gate as told

    plain = result.plain()
    lines = [told.verdict_line(plain)]
    for check in plain["checks"]:
        if check["verdict"] != "pass":
            lines.append(
                f"{told.WORDS[check['verdict']]}: {check['rule']['text']} ({told.where(check)}): "
                f"{told.estimate(check)}, {told.sample(check)}; {told.why(check)}"
            )
    return "\n".join(lines)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, so that strict markers accept it."""
    config.addinivalue_line(
        "markers",
        "ragassay(run, rules, baseline=None, level=0.05, icc=None, max_dropped=0.1, "
        "undecided='fail'): the run folder and the rules that the ragassay fixture checks",
    )


@pytest.fixture
def ragassay(request: pytest.FixtureRequest) -> Gate:
    """The gate, with the settings of the test's ``ragassay`` marker."""
    options: dict[str, Any] = {}
    marker = request.node.get_closest_marker("ragassay")
    if marker is not None:
        if len(marker.args) > 1:
            raise pytest.UsageError("the ragassay marker takes one run folder; rules=[...] by name")
        options = {**({"run": marker.args[0]} if marker.args else {}), **marker.kwargs}
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise pytest.UsageError(
                f"the ragassay marker has no option {unknown[0]!r}; known: {', '.join(_OPTIONS)}"
            )
    return Gate(request.config.rootpath, options)
