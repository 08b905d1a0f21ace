"""Every exception that ragassay raises on purpose, and the exit code it ends with.

::

    RagassayError                 1   anything below
    |-- ConfigError               2   the experiment file, an option or an argument is wrong
    |   `-- PluginError           2   a plug-in is unknown, clashes or cannot be loaded
    |-- DataError                 3   a data file is wrong (names the file, line and value)
    |-- StoreError                4   a run folder cannot be read, written or shared
    |-- BackendError              5   a model or server failed
    |   |-- BackendUnavailable    5   it is not there at all (missing package, refused connection)
    |   `-- TooManyFailures       5   a run ended with more failed trials than it may have
    |-- NotEstimable              6   too few data for what was asked
    |-- KnowledgeError            7   an attack reached for what it did not declare
    |-- GateUsage                64   a rule or an option of the gate is wrong
    `-- Interrupted             130   stopped by the user; finished trials are kept
"""

from __future__ import annotations


class RagassayError(Exception):
    """Base of all deliberate errors. The message is one line that a user can act on."""

    exit_code = 1


class ConfigError(RagassayError):
    """An experiment file, option or argument is wrong."""

    exit_code = 2


class PluginError(ConfigError):
    """A plug-in is unknown, is named twice, or cannot be loaded."""


class DataError(RagassayError):
    """A data file does not hold what it should.

    Parameters
    ----------
    message : str
        What was found and what is expected.
    path, line : optional
        Where; printed in front as ``path:line:``.
    """

    exit_code = 3

    def __init__(self, message: str, *, path: object = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}: " if line is None else f"{path}:{line}: "
        super().__init__(where + message)


class StoreError(RagassayError):
    """A run folder cannot be read, written, or is in use by another process."""

    exit_code = 4


class BackendError(RagassayError):
    """A model or a server did not answer. A trial that meets it has no outcome.

    ``retryable`` says whether the same request may succeed later.
    """

    exit_code = 5

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class BackendUnavailable(BackendError):
    """The back end cannot be used at all: a missing package, no server, no weights."""


class TooManyFailures(BackendError):
    """A run ended, but more of its trials failed than ``run.error_budget`` allows.

    ``folder`` is the run folder; its summary counts the failed trials as dropped.
    """

    def __init__(self, message: str, *, folder: object) -> None:
        super().__init__(message)
        self.folder = folder


class NotEstimable(RagassayError):
    """There are too few data to estimate what was asked."""

    exit_code = 6


class KnowledgeError(RagassayError):
    """An attack reached for something that it did not declare."""

    exit_code = 7


class GateUsage(RagassayError):
    """A rule or an option of the gate is wrong.

    The gate says pass, fail and undecided by the exit codes 0, 1 and 2, so that a mistake in its
    use must not have one of these (64 is ``EX_USAGE`` of sysexits.h).
    """

    exit_code = 64


class Interrupted(RagassayError):
    """The user stopped the run. Finished trials are kept and are not repeated."""

    exit_code = 130
