"""Commands of the human audit."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ragassay.errors import ConfigError

if TYPE_CHECKING:
    from ragassay.audit.adjudicate import Settled

audit_app = typer.Typer(
    help="Let people check the labels: draw a sample, label it, measure agreement.",
    no_args_is_help=True,
)
_READ = ("resolved.json", "queries", "trials", "scores")  # of a run elsewhere
PacketPath = Annotated[Path, typer.Argument(metavar="PACKET", help="An audit packet folder.")]
NewPacket = Annotated[
    Path, typer.Option("--out", metavar="PACKET", help="The packet folder to write.")
]


@audit_app.command("sample")
def sample_packet(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its URL.")],
    out: NewPacket,
    size: Annotated[int, typer.Option(help="Number of answers wanted, about.")] = 100,
    random: Annotated[
        float, typer.Option(help="Share of them drawn from all answers alike, above 0.")
    ] = 0.3,
    stratum: Annotated[
        list[str] | None,
        typer.Option(
            "--stratum",
            help="flips, disagree, uncertain, method:<defense> or setting:<setting>. May be "
            "repeated [default: flips, disagree, uncertain].",
        ),
    ] = None,
    scorer: Annotated[
        list[str] | None,
        typer.Option("--scorer", help="Whose labels count. May be repeated [default: all]."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds draw equal packets.")] = 1,
) -> None:
    """Draw answers for people to label, blinded, oversampling those in doubt.

    The chance of every answer to be drawn is kept, so that rates of the whole run can be
    estimated. key.json is for the analysis: keep it from annotators.
    """
    from ragassay.audit.packet import write_packet
    from ragassay.audit.sampling import STRATA, sample
    from ragassay.store import RunFolder
    from ragassay.store.remote import local

    with local(run, _READ) as path:
        drawn = sample(
            RunFolder(path), size=size, random_share=random, strata=stratum or STRATA,
            scorers=scorer, seed=seed, name=out.resolve().name,
        )  # fmt: skip
    packet = write_packet(drawn, out)
    typer.echo(
        f"{len(packet.items)} of {packet.answers} distinct answers ({packet.trials} trials) are "
        f"in {out}: {packet.design.random} drawn at random"
        + "".join(f", {p.drawn} of {p.size} {p.name}" for p in packet.design.strata)
        + f" (an answer may be drawn twice).\nLabel them: ragassay audit serve {out}"
    )


@audit_app.command("serve")
def serve_packet(
    packet: PacketPath,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
) -> None:
    """Open the page on which people label a packet, on this machine only; Ctrl-C ends it."""
    from ragassay.audit.app import serve

    serve(packet, port=port, open_browser=not no_open)


@audit_app.command("agree")
def agree_packet(
    packet: PacketPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    confidence: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    draws: Annotated[int, typer.Option(help="Resamples of the bootstrap.")] = 10_000,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Take the scorers' labels from this run, or its URL, as it is now.",
        ),
    ] = None,
) -> None:
    """Compare what people said with the scorers and with each other; opens the key."""
    from ragassay.audit.agree import agree
    from ragassay.audit.text import render_text
    from ragassay.store import RunFolder
    from ragassay.store.remote import local

    with nullcontext() if run is None else local(run, _READ) as path:
        folder = None if path is None else RunFolder(path)
        result = agree(packet, confidence=confidence, draws=draws, folder=folder)
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    typer.echo(render_text(result), nl=False)


@audit_app.command("adjudicate")
def adjudicate_packet(
    packet: PacketPath,
    by: Annotated[str, typer.Option("--by", metavar="NAME", help="Who decides.")],
    decisions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help='Lines {"item": ..., "labels": {...}, "note": ...} [default: show what is open].',
        ),
    ] = None,
) -> None:
    """Settle what annotators disagree on; without --decisions, show the next open item."""
    from ragassay.audit.adjudicate import adjudicate, read_decisions, undecided

    if decisions is not None:
        labels, notes = read_decisions(decisions)
        written = adjudicate(packet, labels, by, notes=notes)
        typer.echo(f"{written} decisions of {by} written; {len(undecided(packet))} items are open.")
        return
    left = undecided(packet)
    if not left:
        typer.echo("All labeled items are settled.")
        return
    _show(left[0], len(left))


@audit_app.command("apply")
def apply_packet(
    packet: PacketPath,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder.")],
) -> None:
    """Write the settled labels into a run as the scorer "human" (report --scorers human)."""
    from ragassay.audit.adjudicate import apply
    from ragassay.store import RunFolder
    from ragassay.store.remote import is_url

    if is_url(run):
        raise ConfigError(
            f"{run} is only read, and labels are written into the run; copy it here first"
        )
    done = apply(packet, RunFolder(Path(run)))
    typer.echo(
        f"{done.items} labeled answers: {done.written} scores written, {done.unchanged} stood "
        f"already ({done.declined} of trials in which a defense declined)."
    )
    if done.skipped:
        typer.echo(f"{len(done.skipped)} labeled answers do not occur in {run}.")


@audit_app.command("import")
def import_audit(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A completed audit, JSON or JSON lines.")
    ],
    out: NewPacket,
) -> None:
    """Turn a completed audit of the Aligned RAG Evaluation artifact into a packet."""
    from ragassay.audit.released import import_completed

    found = import_completed(file, out)
    people = ", ".join(f"{name}: {count}" for name, count in found.labels.items()) or "none"
    typer.echo(f"{len(found.packet.items)} answers in {out}; labels: {people}.")
    for count, what in (
        (found.unlabeled, "answers without all labels"),
        (found.by_models, "labels by models left out"),
        (found.not_applicable, "correctness labels without references set to not_applicable"),
        (found.evidence_missing, "quotes that do not occur in their answer"),
    ):
        if count:
            typer.echo(f"  {count} {what}")
    if not found.packet.design.known:
        typer.echo(
            f"  inclusion probabilities are known for the random part alone "
            f"({found.packet.design.random} answers); population figures use only these"
        )


def _show(each: Settled, left: int) -> None:
    from ragassay.audit.text import one_line

    item = each.item
    typer.echo(f"{left} open; the next is {item.id}")
    for head, text in (
        ("question", item.question),
        ("target", item.target or "none"),
        ("references", "; ".join(item.references) or "none"),
        ("answer", item.answer),
    ):
        typer.echo(f"{head:12s}{one_line(text)}")
    for name in each.open:
        said = ", ".join(f"{who}: {label.labels[name]}" for who, label in each.said.items())
        typer.echo(f"{name}: {said}")
    for who, label in each.said.items():
        if label.comment:
            typer.echo(f"{who} comments: {one_line(label.comment)}")
    decided = dict.fromkeys(each.open, "...")
    typer.echo(
        "Decide with --decisions FILE.jsonl, a line such as\n"
        + json.dumps({"item": item.id, "labels": decided, "note": ""})
    )
