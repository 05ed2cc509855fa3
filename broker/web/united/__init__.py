"""One HTTP port for all workers of a machine, which ask each other for their parts."""
