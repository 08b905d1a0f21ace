"""What runs in a worker process: builds plug-ins from parcels, once each, and calls them.

Errors come back as values. An exception class of a user's plug-in, or of a library, could not
be read where the run was started.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragassay import __version__
from ragassay.cluster.parcel import Parcel, unpack
from ragassay.errors import BackendError, BackendUnavailable, RagassayError
from ragassay.types import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An error of a worker, on its way back."""

    message: str
    gone: bool = False
    retryable: bool = False

    def error(self) -> BackendError:
        """The error to raise where the run was started."""
        kind = BackendUnavailable if self.gone else BackendError
        return kind(self.message, retryable=self.retryable)


class Worker:
    """A process that encodes and generates.

    It keeps loaded models, and in a temporary folder the files that came with them, which it
    removes when it is asked to or ends by itself.

    Parameters
    ----------
    folder : str
        Where the run was started: relative paths of models are looked for there, if it exists.
    environment : mapping
        Variables to set before anything is loaded.
    """

    def __init__(self, folder: str, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        if Path(folder).is_dir():
            os.chdir(folder)
        self._files: Path | None = None
        self._built: dict[str, Any] = {}

    def facts(self) -> dict[str, str]:
        """Version of ragassay and name of the machine."""
        return {"version": __version__, "machine": platform.node()}

    def encode(self, parcel: Parcel, texts: Sequence[str], max_tokens: int | None) -> Any:
        """Embed texts with an encoder: whatever it gives, or :class:`Failed`."""
        return self._call(parcel, lambda built: built.encode(list(texts), max_tokens=max_tokens))

    def generate(self, parcel: Parcel, requests: Sequence[Request]) -> Any:
        """Answer requests with a generator: its list of outcomes, or :class:`Failed`."""

        def ask(built: Any) -> list[Any]:
            outcomes = built.generate(list(requests))
            return [
                Failed(message=str(one), retryable=one.retryable)
                if isinstance(one, BackendError)
                else one
                for one in outcomes
            ]

        return self._call(parcel, ask)

    def clear(self) -> None:
        """Remove the files. A process that is killed hereafter leaves nothing."""
        if self._files is not None:
            shutil.rmtree(self._files, ignore_errors=True)
            self._files = None

    def _folder(self) -> Path:
        if self._files is None:
            self._files = Path(tempfile.mkdtemp(prefix="ragassay-worker-"))
            weakref.finalize(self, shutil.rmtree, self._files, ignore_errors=True)
        return self._files

    def _call(self, parcel: Parcel, call: Any) -> Any:
        try:
            if parcel.key not in self._built:
                self._built[parcel.key] = unpack(
                    parcel, self._folder() if parcel.writes else Path()
                )
            return call(self._built[parcel.key])
        except RagassayError as error:
            return Failed(
                message=f"{error} (worker on {platform.node()})",
                gone=isinstance(error, BackendUnavailable),
                retryable=getattr(error, "retryable", False),
            )
        except Exception as error:  # of a library or of a user's plug-in
            reason = " ".join(str(error).split())[:300]
            return Failed(
                message=f"{parcel.kind} {parcel.identity} raised {type(error).__name__}: {reason} "
                f"(worker on {platform.node()})"
            )
