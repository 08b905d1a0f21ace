"""Attacks of ragassay."""
