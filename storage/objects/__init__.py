"""Objects in a bucket: the durable part of shared topics."""
