package interop;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Reads as a member of a group. */
final class Consuming {
    private static final Duration POLL = Duration.ofSeconds(1);

    private Consuming() {}

    /** Commits, then tells, up to a count of records, until the input ends. */
    static void run(String bootstrap, String topic, String group, int count) {
        Map<String, Object> config = Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
                ConsumerConfig.GROUP_ID_CONFIG, group,
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                ConsumerConfig.MAX_POLL_RECORDS_CONFIG, Math.min(count, 500));
        var text = new StringDeserializer();
        try (var consumer = new KafkaConsumer<>(config, text, text)) {
            consumer.subscribe(List.of(topic), new Telling(consumer));
            var waking = new Thread(() -> {
                Main.input().forEach(line -> {});
                consumer.wakeup();
            });
            waking.setDaemon(true);
            waking.start();
            for (int left = count; left > 0; ) {
                left -= take(consumer, left);
            }
        } catch (WakeupException e) {
            return; // The input has ended; the consumer has left its group.
        }
    }

    private static int take(KafkaConsumer<String, String> consumer, int most) {
        List<ConsumerRecord<String, String>> taken = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> next = new LinkedHashMap<>();
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
            if (taken.size() < most) {
                taken.add(record);
                next.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
            }
        }
        if (!taken.isEmpty()) {
            consumer.commitSync(next);
        }
        taken.forEach(record -> Main.tell(fields(record)));
        return taken.size();
    }

    private static Map<String, Object> fields(ConsumerRecord<String, String> record) {
        List<List<String>> headers = StreamSupport.stream(record.headers().spliterator(), false)
                .map(one -> List.of(one.key(), new String(one.value(), StandardCharsets.UTF_8)))
                .toList();
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("partition", record.partition());
        fields.put("offset", record.offset());
        fields.put("key", record.key());
        fields.put("value", record.value());
        fields.put("headers", headers);
        fields.put("timestamp_ms", record.timestamp());
        return fields;
    }

    /** Tells all that the member has, whatever the assignor moves. */
    private record Telling(KafkaConsumer<?, ?> consumer) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> added) {
            tell(consumer.assignment());
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> removed) {
            List<TopicPartition> kept = new ArrayList<>(consumer.assignment());
            kept.removeAll(removed);
            tell(kept);
        }

        private static void tell(Collection<TopicPartition> partitions) {
            Main.tell(Map.of(
                    "assigned",
                    partitions.stream().map(TopicPartition::partition).sorted().toList()));
        }
    }
}
