// A client of a siege with Apache Kafka's own library; it ends after its standard input has.
//
//     java SiegeClient.java KIND NAME BOOTSTRAP FILE SEED TOPIC:PARTITIONS[:BROKER,...] ...
//
// KIND is java-idempotent, java-member (KIP-848) or java-sharer (KIP-932). FILE gets its part of the
// history; tests/histories/recording.py describes its lines.

import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;

public class SiegeClient {
    static final int PAUSE_MS = 10;
    static final int PATIENCE_MS = 600_000;
    // What was waiting for a partition fits into one of its small segments.
    static final int BATCH_BYTES = 5_000;
    static final Duration POLL = Duration.ofMillis(200);
    static final String BYTES = "org.apache.kafka.common.serialization.";

    static volatile boolean isOver;
    static FileOutputStream file;
    static int count;
    static String name;
    static Random source;
    static final List<TopicPartition> places = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        String kind = arguments[0];
        name = arguments[1];
        file = new FileOutputStream(arguments[3]);
        source = new Random((arguments[4] + name).hashCode());
        for (int at = 5; at < arguments.length; at++) {
            String[] parts = arguments[at].split(":");
            for (int number = 0; number < Integer.parseInt(parts[1]); number++)
                places.add(new TopicPartition(parts[0], number));
        }
        Thread waiting = new Thread(SiegeClient::waitForTheEnd);
        waiting.setDaemon(true);
        waiting.start();
        switch (kind) {
            case "java-idempotent" -> produce(arguments[2]);
            case "java-member" -> consume(arguments[2]);
            case "java-sharer" -> share(arguments[2]);
            default -> throw new IllegalArgumentException(kind);
        }
    }

    static void waitForTheEnd() {
        try {
            while (System.in.read() >= 0) { }
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
        isOver = true;
    }

    // --- the history -----------------------------------------------------------------------------

    static synchronized int begin(String kind, String members) {
        count++;
        write("{\"id\":" + count + ",\"begin\":\"" + kind + "\",\"client\":\"" + name + "\"" + members);
        return count;
    }

    static synchronized void end(int number, String members) {
        write("{\"id\":" + number + ",\"outcome\":\"done\"" + members);
    }

    static void write(String line) {
        double timeS = System.nanoTime() / 1e9;
        String whole = line + String.format(",\"time_s\":%.6f}%n", timeS);
        try {
            file.write(whole.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new RuntimeException(error);
        }
    }

    static void note(String problem) {
        begin("problem", ",\"text\":\"" + problem.replaceAll("[\"\\\\\\p{Cntrl}]", " ") + "\"");
    }

    static String place(TopicPartition one) {
        return ",\"topic\":\"" + one.topic() + "\",\"partition\":" + one.partition();
    }

    // --- clients ---------------------------------------------------------------------------------

    static Properties settings(String bootstrap) {
        Properties made = new Properties();
        made.put("bootstrap.servers", bootstrap);
        made.put("client.id", name);
        made.put("reconnect.backoff.max.ms", "500");
        made.put("key.serializer", BYTES + "StringSerializer");
        made.put("value.serializer", BYTES + "StringSerializer");
        made.put("key.deserializer", BYTES + "StringDeserializer");
        made.put("value.deserializer", BYTES + "StringDeserializer");
        made.put("enable.metrics.push", "false");
        return made;
    }

    static void produce(String bootstrap) throws InterruptedException {
        Properties settings = settings(bootstrap);
        settings.put("delivery.timeout.ms", String.valueOf(PATIENCE_MS));
        settings.put("max.block.ms", String.valueOf(PATIENCE_MS));
        settings.put("batch.size", String.valueOf(BATCH_BYTES));
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            for (int number = 0; !isOver; number++) {
                TopicPartition to = places.get(source.nextInt(places.size()));
                String value = name + "-" + number;
                int begun = begin("append", place(to) + ",\"values\":[\"" + value + "\"]");
                String key = "k" + number % 5; // history.key_of
                producer.send(
                    new ProducerRecord<>(to.topic(), to.partition(), key, value),
                    (metadata, error) -> {
                        if (error == null) end(begun, ",\"offset\":" + metadata.offset());
                        else note("refused: a record for " + to + ": " + error);
                    });
                Thread.sleep(PAUSE_MS);
            }
        }
    }

    static void consume(String bootstrap) {
        Properties settings = settings(bootstrap);
        String group = "java-members";
        settings.put("group.id", group);
        settings.put("group.protocol", "consumer");
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(places.stream().map(TopicPartition::topic).distinct().toList());
            while (!isOver) {
                Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
                var found = consumer.poll(POLL);
                for (TopicPartition one : found.partitions()) {
                    var records = found.records(one);
                    int begun = begin("read", place(one) + ",\"committed\":true");
                    end(begun, ",\"records\":" + entries(records, record -> record.leaderEpoch().orElse(-1)));
                    long next = records.get(records.size() - 1).offset() + 1;
                    positions.put(one, new OffsetAndMetadata(next));
                }
                if (!positions.isEmpty()) commit(consumer, group, positions);
            }
        }
    }

    static void commit(
            KafkaConsumer<String, String> consumer,
            String group,
            Map<TopicPartition, OffsetAndMetadata> positions) {
        List<Integer> begun = new ArrayList<>();
        positions.forEach((to, position) -> begun.add(begin(
            "commit_offset",
            place(to) + ",\"group\":\"" + group + "\",\"position\":true,\"offset\":" + position.offset())));
        try {
            consumer.commitSync(positions);
        } catch (KafkaException error) { // its partitions are others' now, or nobody answered
            return;
        }
        begun.forEach(number -> end(number, ""));
    }

    static void share(String bootstrap) {
        Properties settings = settings(bootstrap);
        String group = "sharers";
        settings.put("group.id", group);
        settings.put("share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(places.stream().map(TopicPartition::topic).distinct().toList());
            while (!isOver) {
                try {
                    acknowledge(consumer, group);
                } catch (RetriableException error) { // the next poll finds the leader
                    continue;
                }
            }
        }
    }

    static void acknowledge(KafkaShareConsumer<String, String> consumer, String group) {
        Map<TopicPartition, List<Integer>> begun = new HashMap<>();
        var found = consumer.poll(POLL);
        for (TopicPartition one : found.partitions()) {
            String where = place(one) + ",\"group\":\"" + group + "\"";
            end(begin("share_fetch", where),
                ",\"records\":" + entries(found.records(one), record -> record.deliveryCount().orElse((short) 1)));
            for (ConsumerRecord<String, String> record : found.records(one)) {
                int drawn = source.nextInt(10);
                AcknowledgeType type = drawn == 0 ? AcknowledgeType.RELEASE
                    : drawn == 1 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
                String bounds = ",\"first\":" + record.offset() + ",\"last\":" + record.offset();
                String kind = ",\"type\":\"" + type.toString() + "\"";
                int number = begin("share_acknowledge", where + bounds + kind);
                begun.computeIfAbsent(one, key -> new ArrayList<>()).add(number);
                consumer.acknowledge(record, type);
            }
        }
        Map<TopicIdPartition, ?> results = consumer.commitSync();
        results.forEach((place, error) -> {
            if (((java.util.Optional<?>) error).isEmpty()) {
                List<Integer> done = begun.get(place.topicPartition());
                if (done != null) done.forEach(number -> end(number, ""));
            }
        });
    }

    interface Number {
        int of(ConsumerRecord<String, String> record);
    }

    static String entries(List<ConsumerRecord<String, String>> records, Number second) {
        return records.stream()
            .map(one -> "[" + one.offset() + "," + second.of(one) + ",\"" + one.value() + "\"]")
            .collect(Collectors.joining(",", "[", "]"));
    }
}
