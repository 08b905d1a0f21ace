"""Published attacks, one file each: what the passages to inject say."""
