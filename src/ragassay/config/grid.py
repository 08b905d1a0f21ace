"""The file of a grid: one control ladder for each corpus, with what all of them share."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from ragassay.config.parts import Strict, as_parts
from ragassay.errors import ConfigError

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,60}$")]


class GridCorpus(Strict):
    """A corpus: folders in the BEIR layout that are put together, or a data set by name.

    Paths are below the folder of data. ``targets`` is a file of targets, whose questions are
    added where the folders lack them; ``propose`` makes targets by a rule instead. ``set`` are
    settings of this corpus alone, as for ``--set``.
    """

    name: Name
    folders: Annotated[tuple[str, ...], BeforeValidator(as_parts)] = ()
    dataset: str = ""
    targets: str = ""
    propose: Literal["", "substitution", "pool"] = ""
    set: Annotated[tuple[str, ...], BeforeValidator(as_parts)] = ()

    @model_validator(mode="after")
    def _one_source(self) -> GridCorpus:
        if bool(self.folders) == bool(self.dataset):
            raise ValueError(f"corpus {self.name!r}: give folders or a dataset")
        if self.dataset and (self.targets or self.propose):
            raise ValueError(f"corpus {self.name!r}: targets and propose belong to folders")
        if self.targets and self.propose:
            raise ValueError(f"corpus {self.name!r}: give targets or propose, not both")
        return self


class GridQuick(Strict):
    """What ``--quick`` runs: one corpus, with these settings."""

    corpus: str = ""
    set: Annotated[tuple[str, ...], BeforeValidator(as_parts)] = ()


class GridFile(Strict):
    """The whole file. ``experiment`` is an experiment file without data set."""

    name: Name
    data: str = "."
    corpus: Annotated[tuple[GridCorpus, ...], BeforeValidator(as_parts), Field(min_length=1)]
    quick: GridQuick = GridQuick()
    experiment: dict[str, Any]

    @model_validator(mode="after")
    def _names_fit(self) -> GridFile:
        names = [each.name for each in self.corpus]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two [[corpus]] entries are called {twice[0]!r}")
        if self.quick.corpus and self.quick.corpus not in names:
            raise ValueError(f"quick.corpus is {self.quick.corpus!r}, known: {', '.join(names)}")
        for key in ("dataset", "name", "protocol"):
            if key in self.experiment:
                raise ValueError(f"[experiment] may not hold {key!r}: the grid fills it in")
        return self


def read_grid(path: Path) -> GridFile:
    """Read the file of a grid.

    Raises
    ------
    ConfigError
        It is missing, is no TOML, or a key or value is wrong.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    try:
        return GridFile.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{path}: {place + ': ' if place else ''}{message}") from error
