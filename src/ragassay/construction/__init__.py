"""How poison was written: its profile against a clean corpus, and edits that take cues away."""
