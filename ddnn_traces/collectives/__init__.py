"""Jobs, steps and collectives of today's training from the messages of a run, without logs or declared attributes."""
