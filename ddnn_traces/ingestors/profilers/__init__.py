"""What profilers recorded beside the captures: their files, and the collectives in them as rows of events."""
