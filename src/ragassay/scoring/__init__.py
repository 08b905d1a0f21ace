"""Label rules: each reads one answer and says what it holds."""
