"""A folder of documents as passages: Markdown, text, HTML and PDF, cut into chunks.

Chunks come from the library semantic-text-splitter, which cuts at the largest unit that fits
(sections, paragraphs, sentences, words), for Markdown at its own structure. HTML is read with
Beautiful Soup, PDF with pypdf. A passage is called ``<file>#<number>``, and its title is the
file's title or name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ragassay.data.assembly import Parts, Selection, assemble, listed
from ragassay.data.jsonl import existing_file, nearest
from ragassay.data.pairs import found_beside, read_pairs
from ragassay.data.released import read_targets
from ragassay.errors import BackendUnavailable, ConfigError, DataError
from ragassay.types import Dataset, Passage

MAX_FILE_BYTES = 256 * 1024 * 1024
MARKDOWN = (".md", ".markdown")
PLAIN = (".txt", ".text", ".rst")
HTML = (".html", ".htm", ".xhtml")
PDF = (".pdf",)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_MISSING = "{what} needs {library}: pip install 'ragassay[documents]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder of documents as corpus, with questions and answers from a file.

    Parameters
    ----------
    path : str
        The folder; files below it with a known ending are read, in the order of their names.
    questions : str
        CSV or JSON lines of questions and right answers, as for ``pairs``.
    question, answer, id, group, separator : str
        As for ``pairs``.
    targets : str
        The attacker's answers, in any released layout; empty: none yet.
    chunk_characters : int
        Longest passage, in characters.
    overlap : int
        Characters that neighboring passages share at most.
    endings : tuple of str
        Which files are read; known are .md, .markdown, .txt, .text, .rst, .html, .htm, .xhtml
        and .pdf.
    group_size : int
        Questions per injection group, where the rows do not name theirs.
    limit : int
        Use the targets of the first n targeted questions only; 0 uses all.
    name : str
        Name of the data set; the folder's name if empty.
    """

    path: str
    questions: str
    question: str = ""
    answer: str = ""
    id: str = ""
    group: str = ""
    separator: str = ""
    targets: str = ""
    chunk_characters: int = 1000
    overlap: int = 0
    endings: tuple[str, ...] = (*MARKDOWN, *PLAIN, *HTML, *PDF)
    group_size: int = 10
    limit: int = 0
    name: str = ""

    version: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if not self.path or not self.questions:
            raise ConfigError("folder needs path (the documents) and questions (a file)")
        if self.chunk_characters < 50:
            raise ConfigError(f"chunk_characters must be at least 50, got {self.chunk_characters}")
        if not 0 <= self.overlap < self.chunk_characters:
            raise ConfigError(
                f"overlap must be from 0 to below chunk_characters, got {self.overlap}"
            )
        known = (*MARKDOWN, *PLAIN, *HTML, *PDF)
        for ending in self.endings:
            if ending not in known:
                raise ConfigError(f"no way to read {ending!r} files; known: {', '.join(known)}")
        Selection(limit=self.limit, group_size=self.group_size)

    def load(self) -> Dataset:
        """Read, cut and check everything.

        Raises
        ------
        DataError
            The folder holds nothing that can be read, a file is damaged or has no text, or the
            questions are wrong.
        BackendUnavailable
            A library for a kind of file is not installed.
        """
        folder = Path(self.path)
        columns = {"question": self.question, "answer": self.answer, "id": self.id,
                   "group": self.group}  # fmt: skip
        beside = folder.parent
        questions = read_pairs(found_beside(beside, self.questions), columns, self.separator)
        targets = found_beside(beside, self.targets) if self.targets else None
        return assemble(
            Parts(
                name=self.name or folder.resolve().name,
                corpus=read_documents(
                    folder, self.endings, characters=self.chunk_characters, overlap=self.overlap
                ),
                questions=questions,
                released=() if targets is None else read_targets(targets),
                targets_path=targets,
            ),
            Selection(limit=self.limit, group_size=self.group_size),
        )


def read_documents(
    folder: Path, endings: Sequence[str], *, characters: int = 1000, overlap: int = 0
) -> tuple[Passage, ...]:
    """Read the files of a folder and cut them into passages.

    Raises
    ------
    DataError
        There is nothing to read, a file cannot be read or has no text.
    """
    passages: list[Passage] = []
    files = list(_files(folder, tuple(endings)))
    if not files:
        raise DataError(f"no file ends in {listed(list(endings), 12)}", path=folder)
    plain = _splitter("TextSplitter", characters, overlap)
    markdown = _splitter("MarkdownSplitter", characters, overlap)
    empty = []
    for path in files:
        name = path.relative_to(folder).as_posix()
        title, text = _read(path)
        cut = markdown if path.suffix.casefold() in MARKDOWN else plain
        chunks = [chunk for chunk in cut(text) if chunk.strip()]
        if not chunks:
            empty.append(name)
        passages += [
            Passage(id=f"{name}#{number}", title=title or path.stem, text=chunk)
            for number, chunk in enumerate(chunks, start=1)
        ]
    if empty:
        raise DataError(
            f"no text in {listed(empty)} (a PDF of scanned pages needs text recognition first); "
            "take them out of the folder",
            path=folder,
        )
    return tuple(passages)


def _files(folder: Path, endings: tuple[str, ...]) -> Iterator[Path]:
    if not folder.is_dir():
        reason = "is a file, expected a folder" if folder.exists() else "no such folder"
        raise DataError(reason + ("" if folder.exists() else nearest(folder)), path=folder)
    for parent, folders, names in os.walk(folder):  # links to folders are not followed
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for name in sorted(names):
            if name.casefold().endswith(endings) and not name.startswith("."):
                yield Path(parent) / name


def _splitter(kind: str, characters: int, overlap: int) -> Callable[[str], list[str]]:
    try:
        import semantic_text_splitter
    except ImportError as error:
        message = _MISSING.format(what="folder", library="semantic-text-splitter")
        raise BackendUnavailable(message) from error
    splitter = getattr(semantic_text_splitter, kind)(characters, overlap=overlap)
    return lambda text: list(splitter.chunks(text))


def _read(path: Path) -> tuple[str, str]:
    """Title (empty where there is none) and text of a file."""
    existing_file(path)
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise DataError(f"has {size:,} bytes, at most {MAX_FILE_BYTES:,} are read", path=path)
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path) from error
    ending = path.suffix.casefold()
    if ending in PDF:
        return _pdf(path)
    if ending in HTML:
        return _html(data, path)
    return "", _decoded(data, path)


def _decoded(data: bytes, path: Path) -> str:
    if data.startswith(_UTF16):
        raise DataError("not UTF-8 but UTF-16; save it as UTF-8", path=path, line=1)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"not UTF-8: byte 0x{data[error.start]:02X}; save the file as UTF-8",
            path=path, line=line,
        ) from error  # fmt: skip


def _html(data: bytes, path: Path) -> tuple[str, str]:
    """Text of what a reader sees; the page may declare its own encoding."""
    try:
        from bs4 import BeautifulSoup
    except ImportError as error:
        message = _MISSING.format(what="HTML", library="beautifulsoup4")
        raise BackendUnavailable(message) from error
    page: Any = BeautifulSoup(data, "html.parser")
    if page.contains_replacement_characters:
        raise DataError("its encoding is not the one that it declares", path=path)
    title = page.title.get_text(" ", strip=True) if page.title else ""
    for unseen in page(["script", "style", "noscript", "template", "head"]):
        unseen.decompose()
    lines = (" ".join(line.split()) for line in page.get_text("\n").splitlines())
    return title, "\n".join(line for line in lines if line)


def _pdf(path: Path) -> tuple[str, str]:
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, PyPdfError
    except ImportError as error:
        message = _MISSING.format(what="PDF", library="pypdf")
        raise BackendUnavailable(message) from error
    try:
        reader = PdfReader(path)
        closed = reader.is_encrypted and not reader.decrypt("")
        title = "" if closed else str((reader.metadata or {}).get("/Title") or "")
        text = "" if closed else "\n\n".join(page.extract_text() for page in reader.pages)
    except DependencyError as error:  # AES needs a library of its own
        raise DataError("is encrypted; save it without a password", path=path) from error
    except (PyPdfError, ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"is no PDF that can be read: {reason:.120}", path=path) from error
    if closed:
        raise DataError("is encrypted; save it without a password", path=path)
    return title, text.encode("utf-8", "replace").decode("utf-8")
