"""One script a question, asked of Odradek and of Apache Kafka in one run."""
