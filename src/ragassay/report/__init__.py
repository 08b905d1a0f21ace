"""Report of ragassay."""
