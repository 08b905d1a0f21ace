"""Statistics on arrays: intervals, paired comparisons, detector operating points."""
