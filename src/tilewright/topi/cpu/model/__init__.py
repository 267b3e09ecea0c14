"""What a schedule chooses by: models of the time of its loops, on a processor's record."""
