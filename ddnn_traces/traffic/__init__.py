"""The traffic of training: laws of the collectives, the traffic of a run, and its tables and captures."""
