"""Commands that run experiments and show what is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape
from rich.table import Table

from ragassay.cli.console import CONSOLE, print_tables
from ragassay.errors import ConfigError, TooManyFailures

if TYPE_CHECKING:
    from ragassay.experiments.resources import Resources
    from ragassay.experiments.runner import RunResult

data_app = typer.Typer(help="Inspect data sets before a run.", no_args_is_help=True)

ExperimentPath = Annotated[
    Path, typer.Argument(metavar="EXPERIMENT.toml", help="The experiment file.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting: --set retriever.k=10, or append to a list: "
        "--set defense+=my_file.py:MyDefense. May be repeated.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="The run folder [default: runs/<name>-<digest of the settings>].",
    ),
]


def run(experiment: ExperimentPath, settings: Settings = None, out: Out = None) -> None:
    """Run an experiment, or finish one that was interrupted, and write its report.

    The same command goes on where an interrupted run stopped. Exit code 0: done;
    2: wrong experiment; 3: wrong data; 4: run folder; 5: models failed; 130: interrupted.
    """
    from ragassay.experiments.runner import run as run_experiment
    from ragassay.experiments.setup import load_experiment
    from ragassay.report.render import write_reports
    from ragassay.terminal import Board

    loaded = load_experiment(experiment, settings or ())
    rules = loaded.file.scoring
    with Board(CONSOLE, rules.headline or rules.rules[0].title) as board:
        try:
            result = run_experiment(loaded, out=out, monitor=board.monitor)
        except TooManyFailures as failure:
            write_reports(cast(Path, failure.folder))
            raise
        board.monitor.stage("writing the report")
        paths = write_reports(result.folder)
    print_tables(result.summary)
    CONSOLE.print(
        f"{result.trials_run} trials run, {result.trials_reused} reused; "
        f"{result.model_calls} model calls{_for_evidence(result)}, "
        f"{result.encoded_texts} texts encoded; "
        f"{result.seconds:.1f} s, of which {result.model_seconds:.1f} s in the model and "
        f"{result.encoder_seconds:.1f} s in the encoder.",
        highlight=False,
    )
    CONSOLE.print(f"Report: {paths['html']}", highlight=False, soft_wrap=True)


def plan(
    experiment: ExperimentPath,
    settings: Settings = None,
    out: Out = None,
    passages: Annotated[
        int | None,
        typer.Option("--passages", min=1, metavar="N", help="As if the corpus had so many."),
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            "--tokens-per-second",
            metavar="X",
            help="Input and output tokens that the models do in a second, all together.",
        ),
    ] = None,
    texts_per_second: Annotated[
        float | None,
        typer.Option(
            "--texts-per-second", metavar="X", help="Passages that are encoded in a second."
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="RUN",
            help="Take both speeds from what this run, or its URL, measured.",
        ),
    ] = None,
) -> None:
    """Print what a run would do and take: settings, trials, calls, tokens, hours, bytes.

    Runs nothing. Calls are bounds from above; what follows from them leans to the high side.
    """
    from ragassay.experiments.protocols import protocol
    from ragassay.experiments.resources import Speeds, measured, resources
    from ragassay.experiments.setup import load_experiment
    from ragassay.store.remote import local

    known = Speeds()
    if like is not None:
        with local(like, ["resolved.json", "timing.json"]) as path:
            known = measured(path)
    speeds = Speeds(
        tokens=known.tokens if tokens_per_second is None else tokens_per_second,
        texts=known.texts if texts_per_second is None else texts_per_second,
        source=f"measured in {like}" if like is not None else known.source,
    )
    loaded = load_experiment(experiment, settings or ())
    setup = protocol(loaded.file.protocol).set_up(loaded)
    result = protocol(setup.protocol).estimate(setup, out)
    typer.echo(json.dumps(setup.resolved(), indent=2, ensure_ascii=False))
    table = Table(title="Model calls at most", title_justify="left")
    table.add_column("for")
    table.add_column("calls", justify="right")
    for purpose, calls in result.calls.items():
        table.add_row(escape(purpose), f"{calls:,}")
    table.add_row("together", f"{sum(result.calls.values()):,}", style="bold")
    CONSOLE.print(table)
    CONSOLE.print(
        f"{result.trials} trials: {result.made_of}; {result.done} are done in {result.folder}.\n"
        "Equal prompts are asked once, so the calls that are made are fewer.",
        highlight=False,
        markup=False,
    )
    if loaded.file.protocol != "system":  # whose models are not ours to count
        _print_resources(resources(setup, result, speeds=speeds, passages=passages))


def _print_resources(needed: Resources) -> None:
    table = Table(title="Resources, estimated", title_justify="left")
    table.add_column("what")
    table.add_column("amount", justify="right")

    def hours(value: float | None, option: str) -> str:
        return f"not known ({option})" if value is None else f"{value:,.2f}"

    vectors = "not known" if needed.vector_bytes is None else f"{needed.vector_bytes:,}"
    for name, amount in (
        ("passages of the corpus", f"{needed.passages:,}"),
        ("input tokens", f"{needed.input_tokens:,}"),
        ("output tokens", f"{needed.output_tokens:,}"),
        ("hours in the models", hours(needed.model_hours, "--tokens-per-second")),
        ("passages to encode", f"{needed.encoded:,}"),
        ("hours in the encoder", hours(needed.encoder_hours, "--texts-per-second")),
        ("bytes of vectors", vectors),
        ("bytes of the run folder, not packed", f"{needed.folder_bytes:,}"),
    ):
        table.add_row(name, amount)
    CONSOLE.print(table)
    CONSOLE.print(
        "A call is taken to hold the longest template of its defense or judge and a whole context, "
        "at 4 characters a token, and to be answered at full length. What attacks "
        "ask while they craft is not counted.",
        highlight=False,
        markup=False,
    )


def report(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its URL.")],
    scorers: Annotated[
        str | None,
        typer.Option(
            "--scorers",
            metavar="NAME,...",
            help="Which scorers to analyze and compare, in this order: "
            "published,tokens,endorse,judge,human [default: all that have records].",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json instead.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Write there [default: into the run folder; a URL needs it].",
        ),
    ] = None,
) -> None:
    """Analyze a run folder again and write summary.json, report.md and report.html.

    Needs no model: only the records in the folder are read.
    """
    from ragassay import canon
    from ragassay.experiments.protocols import analyze
    from ragassay.report.reading import ReadOnce
    from ragassay.report.render import write_reports
    from ragassay.report.tables import label_table
    from ragassay.store import RunFolder
    from ragassay.store.remote import is_url, local

    if out is None and is_url(folder):
        raise ConfigError(f"{folder} is only read: say with --out FOLDER where to write")
    chosen = None if scorers is None else [name.strip() for name in scorers.split(",")]
    with local(folder) as path:
        records = ReadOnce(path)
        summary = analyze(records, chosen)
        text = canon.dumps(summary) + "\n"
        if out is None:
            with records.writer() as store:
                store.write_text("summary.json", text)
                paths = write_reports(records)
        else:
            with RunFolder(out).writer() as store:
                store.write_text("summary.json", text)
                paths = write_reports(records, out=out)
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    print_tables(summary)
    labels = label_table(summary) if "label_comparison" in summary else None
    if labels is not None:
        CONSOLE.print()
        CONSOLE.print(labels)
    CONSOLE.print(f"Report: {paths['html']}", highlight=False, soft_wrap=True)


def trial(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="A run folder, or its URL.")],
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="The trial's key, or how it starts (8 digits).")
    ],
) -> None:
    """Print one trial and its labels as JSON, without reading the others."""
    from ragassay.store import RunFolder
    from ragassay.store.remote import local

    with local(folder, ["resolved.json", "trials", "scores"]) as path:
        store = RunFolder(path)
        store.read_json("resolved.json")
        index = store.index("trials")
        keys = [key] if key in index else index.starting(key) if _starts_a_key(key) else []
        if len(keys) != 1:
            many = f"{len(keys)} trials start so" if keys else "no trial has it or starts so"
            raise ConfigError(f"{folder}: key {key[:80]!r}: {many}")
        labels = {body["scorer"]: body for body in store.index("scores").find(keys[0])}
        found = {"trial": index.find(keys[0])[-1], "scores": list(labels.values())}
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False))


def _starts_a_key(text: str) -> bool:
    return len(text) >= 8 and not set(text) - set("0123456789abcdef")


def list_plugins(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="attack, dataset, defense, encoder, generator, retriever, scorer or system; "
            "all if absent."
        ),
    ] = None,
) -> None:
    """List attacks, defenses, retrievers, generators, scorers, systems and data sets."""
    from ragassay import plugins

    if kind is not None and kind.removesuffix("s") not in plugins.KINDS:
        raise ConfigError(f"unknown kind {kind!r}; known: {', '.join(plugins.KINDS)}")
    kinds = plugins.KINDS if kind is None else (cast(plugins.Kind, kind.removesuffix("s")),)
    for each in kinds:
        table = Table(title=each, title_justify="left", show_header=False, box=None)
        table.add_column(no_wrap=True, style="bold")
        table.add_column()
        for name in plugins.names(each):
            table.add_row(name, escape(plugins.summary(plugins.find(each, name).cls)))
        CONSOLE.print(table)
        CONSOLE.print()


def show(
    name: Annotated[str, typer.Argument(help="A plug-in's name, kind:name, or file.py:ClassName.")],
) -> None:
    """Show a plug-in: what it does, its options, its source, and how it deviates from it."""
    from ragassay import plugins

    found = _find_any(name)
    for each in found:
        about = plugins.describe(each)
        CONSOLE.print(f"[bold]{each.kind} {escape(each.name)}[/bold]")
        CONSOLE.print(about["doc"], markup=False, highlight=False)
        for head in ("source", "deviations"):
            if about[head]:
                CONSOLE.print(f"\n{head.title()}: {about[head]}", markup=False, highlight=False)
        if about["knowledge"] is not None:
            CONSOLE.print(f"\nKnowledge: {about['knowledge']}", markup=False, highlight=False)
        for threat in about["threats"]:
            CONSOLE.print(f"{threat.id} {threat.name}: {threat.url}", markup=False, highlight=False)
        if about["options"]:
            table = Table(title="Options", title_justify="left")
            for column in ("option", "type", "default"):
                table.add_column(column)
            for option in about["options"]:
                default = "required" if option["required"] else repr(option["default"])
                table.add_row(option["name"], escape(option["type"]), escape(default))
            CONSOLE.print(table)
        CONSOLE.print()


def doctor(
    experiment: Annotated[
        Path | None,
        typer.Argument(
            metavar="[EXPERIMENT.toml]",
            help="Check this experiment's back end [default: embedded].",
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Check this machine: packages, models, cache; ask the back end twice whether it repeats."""
    from ragassay.diagnosis import examine

    failed = False
    for finding in examine(experiment, settings or ()):
        mark = {"ok": "ok  ", "warning": "WARN", "error": "FAIL"}[finding.level]
        failed = failed or finding.level == "error"
        CONSOLE.print(f"{mark}  {finding.text}", markup=False, highlight=False, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


@data_app.command("check")
def data_check(experiment: ExperimentPath, settings: Settings = None) -> None:
    """Check the data set of an experiment: counts, duplicates, targets, poison texts."""
    from ragassay.data.check import check
    from ragassay.experiments.setup import load_dataset, load_experiment

    dataset = load_dataset(load_experiment(experiment, settings or ()))
    findings = check(dataset)
    for finding in findings:
        CONSOLE.print(
            f"{finding.severity:8s}{finding.where}: {finding.message}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(3)


@data_app.command("targets")
def data_targets(
    experiment: ExperimentPath,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="A new file of targets: JSON lines.")
    ],
    by: Annotated[
        str,
        typer.Option(
            "--by",
            metavar="WAY",
            help="substitution (yes and no, numbers, names; else as pool), pool (answers of other "
            "questions that look alike), or model (asks the helper).",
        ),
    ] = "substitution",
    limit: Annotated[
        int, typer.Option("--limit", min=0, help="Propose for this many questions; 0: for all.")
    ] = 0,
    settings: Settings = None,
) -> None:
    """Propose wrong answers as targets, for questions that have none, and print them.

    Look through the file, change or delete what does not fit, and name it in the experiment:
    [dataset] targets = "FILE".
    """
    from ragassay.experiments.setup import load_experiment
    from ragassay.experiments.targets import By, propose, write_targets

    loaded = load_experiment(experiment, settings or ())
    found = propose(loaded, cast(By, by), limit=limit)
    written = write_targets(out, found)
    table = Table(title="Proposed targets", title_justify="left")
    for column in ("question", "right answer", "proposed", "by"):
        table.add_column(column, overflow="fold")
    for each in found:
        cells = (each.question, each.references[0], each.wanted or "(none)", each.by)
        table.add_row(*(escape(_short(cell)) for cell in cells))
    CONSOLE.print(table)
    CONSOLE.print(
        f"{written} of {len(found)} questions have a proposal, in {out}. Look through them before "
        "they are used.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _short(text: str, limit: int = 120) -> str:
    from ragassay.report.text import visible

    return visible(text, limit=limit)


def _for_evidence(result: RunResult) -> str:
    plain = result.model_calls - result.evidence_calls
    if not result.evidence_calls:
        return ""
    share = f", {result.model_calls / plain:.2f} times those of the plain run" if plain else ""
    return f" ({result.evidence_calls} of them for contexts with evidence removed{share})"


def _find_any(name: str) -> list[Any]:
    from ragassay import plugins

    kind, colon, rest = name.partition(":")
    if colon and kind in plugins.KINDS:
        return [plugins.find(kind, rest)]
    if ".py:" in name:
        return [plugins.find("defense", name)]
    found = [plugins.find(k, name) for k in plugins.KINDS if name in plugins.names(k)]
    if found:
        return found
    import difflib

    known = sorted({n for k in plugins.KINDS for n in plugins.names(k)})
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(f"nothing is called {name!r}{hint} See: ragassay list")
