"""Scoring of ragassay."""
