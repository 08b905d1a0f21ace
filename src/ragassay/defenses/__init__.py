"""Defenses of ragassay."""
