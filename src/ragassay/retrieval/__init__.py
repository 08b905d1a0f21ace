"""Retrieval: exact top-k of a corpus, with poison laid over it."""
