"""Generation of ragassay."""
