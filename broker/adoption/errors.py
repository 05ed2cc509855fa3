"""Errors of an adoption of Kafka's data."""


class AdoptionError(Exception):
    """The data cannot be adopted; the message says what to do."""
