"""Several brokers of one machine, started and watched by one process."""
