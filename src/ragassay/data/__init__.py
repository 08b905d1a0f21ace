"""Data of ragassay."""
