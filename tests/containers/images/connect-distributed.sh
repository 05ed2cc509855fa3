#!/bin/sh
exec java -cp '/opt/kafka/libs/*' org.apache.kafka.connect.cli.ConnectDistributed "$@"
