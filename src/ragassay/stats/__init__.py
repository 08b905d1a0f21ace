"""Stats of ragassay."""
