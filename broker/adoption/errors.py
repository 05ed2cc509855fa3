"""Why Kafka's data cannot be adopted."""


class AdoptionError(Exception):
    """The data cannot be adopted as it is; the message says what to do."""
