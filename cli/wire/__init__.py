"""A client of Kafka's protocol for the requests that librdkafka does not send."""
