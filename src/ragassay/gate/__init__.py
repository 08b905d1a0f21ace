"""A run folder against rules: pass, fail or undecided. Reads records only; no model."""
