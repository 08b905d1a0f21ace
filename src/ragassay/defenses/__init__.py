"""Published defenses and detectors, one file each; reached by name through ``plugins``."""
