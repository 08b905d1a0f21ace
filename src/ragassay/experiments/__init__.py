"""Experiments of ragassay."""
