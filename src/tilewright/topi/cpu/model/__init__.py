"""Models of loop times on a processor's record, by which schedules choose."""
