"""The result of :func:`ragassay.audit.agree.agree` as plain text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SHOWN = 20
_WIDTH = 70


def render_text(result: Mapping[str, Any]) -> str:
    """Lay out an agreement result: coverage, scorers, people, population, disagreements.

    Control characters of answers and questions are replaced, so that nothing in them can steer
    the terminal.
    """
    return "\n".join([*_head(result), *_scorers(result), *_between(result), *_population(result),
                      *_disagreements(result)]) + "\n"  # fmt: skip


def _head(result: Mapping[str, Any]) -> Iterator[str]:
    size = result["population_size"]
    yield (
        f"Packet {one_line(result['packet']['name'])}: {result['packet']['items']} of "
        f"{size['answers']} distinct answers ({size['trials']} trials)"
    )
    for name, each in result["annotators"].items():
        yield f"  {name}: {each['labeled']} of {each['of']} labeled"
    settled = result["settled"]
    yield (
        f"  settled {settled['items']}, open {settled['open']}, "
        f"by decision {settled['adjudicated']}"
    )


def _scorers(result: Mapping[str, Any]) -> Iterator[str]:
    level = f"{100 * result['confidence']:g} %"
    rows = [
        (
            each["field"], each["human"], each["scorer"], _share(each["overall"]),
            _share(each["decisive"]), _value(each["kappa"]), _value(each["kappa3"]),
            str(each["unscored"]),
        )
        for each in sorted(result["scorers"], key=lambda e: (e["field"], e["human"]))
    ]  # fmt: skip
    yield ""
    yield f"People and scorers (in brackets: {level} intervals; uncertain counts as disagreement)"
    head = ("field", "human", "scorer", "overall", "decisive", "kappa", "kappa3", "unscored")
    yield from _table(head, rows)


def _between(result: Mapping[str, Any]) -> Iterator[str]:
    between = result["between"]
    if not between["pairs"]:
        return
    yield ""
    yield "Annotators against each other"
    yield from _table(
        ("field", "annotators", "overall", "kappa", "kappa3"),
        [
            (
                each["field"], " / ".join(each["annotators"]), _share(each["overall"]),
                _value(each["kappa"]), _value(each["kappa3"]),
            )
            for each in between["pairs"]
        ],
    )  # fmt: skip
    for each in between["alpha"]:
        yield f"  Krippendorff's alpha, {each['field']}: {_value(each)} over {each['n']} items"


def _population(result: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield "Estimated for all answers of the run"
    rows, reasons = [], {}
    for each in result["population"]:
        if each["reason"]:
            reasons[each["reason"]] = True
        if each["answers"] is None:
            continue
        for label in ("yes", "uncertain"):
            trials = each["trials"]
            rows.append(
                (
                    f"{each['field']} = {label}", each["human"], _estimate(each["answers"][label]),
                    "not known" if trials is None else _estimate(trials[label]),
                )
            )  # fmt: skip
    yield from _table(("label", "human", "per distinct answer", "per trial"), rows)
    agreed = [
        (
            each["field"], each["human"], each["scorer"],
            _estimate(each["population"]["answers"]["overall"]),
            _estimate(each["population"]["answers"]["decisive"]),
            _estimate(each["population"]["answers"]["kappa"]),
        )
        for each in result["scorers"]
        if each["population"]["answers"] is not None
    ]  # fmt: skip
    if agreed:
        yield ""
        yield "Agreement, estimated for all answers of the run (per distinct answer)"
        head = ("field", "human", "scorer", "overall", "decisive", "kappa")
        yield from _table(head, agreed)
    for reason in reasons:
        yield f"  note: {reason}"


def _disagreements(result: Mapping[str, Any]) -> Iterator[str]:
    found = result["disagreements"]
    yield ""
    yield f"Disagreements: {len(found)}" + (
        f" (the first {_SHOWN}; --json has all)" if len(found) > _SHOWN else ""
    )
    for each in found[:_SHOWN]:
        people = ", ".join(f"{who}: {label}" for who, label in each["annotators"].items())
        scorers = ", ".join(
            f"{who}: {label or 'not scored'}" for who, label in each["scorers"].items()
        )
        yield f"  {each['item'][:12]} {each['field']}: {people}; {scorers}"
        yield f"    question  {_cut(each['question'])}"
        yield f"    target    {_cut(each['target'] or 'none')}"
        yield f"    answer    {_cut(each['answer'])}"


def one_line(text: str) -> str:
    """Put a text on one line, without characters that steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def _cut(text: str) -> str:
    text = " ".join(one_line(text).split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _share(share: Mapping[str, Any]) -> str:
    if share["rate"] is None:
        return "0/0"
    return f"{share['count']}/{share['n']} {100 * share['rate']:.0f} % {_bounds(share, 100)}"


def _estimate(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "not estimable"
    return f"{found['value']:.3f} {_bounds(found)} n={found['n']}"


def _value(found: Mapping[str, Any]) -> str:
    if found["value"] is None:
        return "not estimable"
    return f"{found['value']:.2f} {_bounds(found)}"


def _bounds(found: Mapping[str, Any], scale: float = 1) -> str:
    if found["low"] is None:
        return "[no interval]"
    digits = 0 if scale == 100 else 2
    return f"[{scale * found['low']:.{digits}f}, {scale * found['high']:.{digits}f}]"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        yield ("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True))).rstrip()
