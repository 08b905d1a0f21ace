"""Retrieval of ragassay."""
