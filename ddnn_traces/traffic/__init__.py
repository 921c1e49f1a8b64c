"""What training sends: laws of the collectives, the traffic of a run, and the tables and captures written from it."""
