"""Benchmarks: each script answers one question, for Odradek and for Apache Kafka in one run."""
