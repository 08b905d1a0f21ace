"""faiss as the sieve of the exact search, and its answers checked.

faiss scores in float32 and breaks ties as it likes. Its candidates, some more than asked for,
are scored exactly; where the worst of them lies so far below the k-th best that no row which
faiss left out can be better, the answer is proved, and else the query is scanned.

Source: Douze et al., The Faiss library, 2024 (IndexFlatIP).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ragassay.errors import BackendUnavailable
from ragassay.retrieval.corpus_matrix import Stored
from ragassay.retrieval.fixed import Similarity, fixed_point, pair_scores
from ragassay.retrieval.rows import Vectors
from ragassay.retrieval.scan import Found, Scan, error_bound

_ADDED_ROWS = 65_536
_MORE = 32  # candidates beyond k, for ties and for what float32 cannot tell apart


def searcher(
    matrix: Stored, similarity: Similarity, accelerator: Literal["none", "faiss"]
) -> Scan | FaissScan:
    """Return what searches a matrix.

    Raises
    ------
    BackendUnavailable
        faiss is asked for and not installed.
    """
    scan = Scan(matrix, similarity)
    return scan if accelerator == "none" else FaissScan(matrix, similarity, scan)


class FaissScan:
    """Exact search with faiss as the sieve; the same results as :class:`Scan`.

    Parameters
    ----------
    matrix : ndarray of float32 or float16, shape (n, d)
        Copied into memory as float32.
    similarity : {"cosine", "dot"}
    scan : Scan
        Answers what faiss cannot prove.

    Attributes
    ----------
    unproved : int
        Queries that were scanned.

    Raises
    ------
    BackendUnavailable
        faiss is not installed.
    """

    def __init__(self, matrix: Stored, similarity: Similarity, scan: Scan) -> None:
        self.unproved = 0
        self._matrix = matrix
        self._similarity: Similarity = similarity
        self._scan = scan
        self._index: Any = _faiss().IndexFlatIP(matrix.shape[1])
        self._longest = 0.0
        for start in range(0, len(matrix), _ADDED_ROWS):
            rows = np.array(matrix[start : start + _ADDED_ROWS], dtype=np.float64)
            lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
            self._longest = max(self._longest, float(lengths.max()))
            if similarity == "cosine":
                rows /= np.where(lengths > 0, lengths, 1.0)
            self._index.add(rows.astype(np.float32))

    def top(self, queries: Vectors, k: int) -> Found:
        """Return the k best rows for each query, as :meth:`Scan.top` does."""
        n, dimension = self._matrix.shape
        k = min(k, n)
        count = min(k + _MORE, n)
        if not len(queries) or not k:
            return self._scan.top(queries, k)
        whole = queries.astype(np.float64)
        lengths = np.sqrt(np.square(whole).sum(axis=1))
        units = (whole / np.where(lengths > 0, lengths, 1.0)[:, None]).astype(np.float32)
        rough, rows = self._index.search(units, count)
        fixed = fixed_point(queries, self._similarity)
        found = Found(np.empty((len(queries), k), np.intp), np.empty((len(queries), k)))
        longest = 1.0 if self._similarity == "cosine" else self._longest
        error = error_bound(dimension) * longest
        doubtful = []
        for number in range(len(queries)):
            some = np.sort(rows[number])
            ours = fixed[np.full(len(some), number)]
            scores = pair_scores(
                ours, fixed_point(self._matrix[some], self._similarity), self._similarity
            )
            order = np.lexsort((some, -scores))[:k]
            found.rows[number], found.scores[number] = some[order], scores[order]
            unit = 1.0 if self._similarity == "cosine" else lengths[number]
            beaten = float(rough[number, -1]) + error < found.scores[number, -1] / (unit or 1.0)
            if count < n and not beaten:  # False also where faiss found no finite score
                doubtful.append(number)
        if doubtful:
            self.unproved += len(doubtful)
            again = self._scan.top(queries[doubtful], k)
            found.rows[doubtful], found.scores[doubtful] = again
        return found


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise BackendUnavailable(
            "accelerator = 'faiss' needs faiss: pip install 'ragassay[faiss]', or leave it out: "
            "the results are the same"
        ) from error
    return faiss
