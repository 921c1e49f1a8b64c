"""Which files are read where: picklable tasks, one for each file, and a scheduler that runs them."""
