"""Odradek: a Kafka-protocol-compatible broker whose first virtue is log cleaning.

The packages are the folders at the top of the repository; here are links to them. An installation
has this one name, so that it never meets a module of yours.
"""
