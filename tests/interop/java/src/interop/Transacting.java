package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes in transactions. */
final class Transacting implements AutoCloseable {
    private static final int BATCH = 20;
    private final KafkaProducer<String, String> producer;

    Transacting(String bootstrap, String id, int timeoutMs) {
        Map<String, Object> config = Map.of(
                ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
                ProducerConfig.TRANSACTIONAL_ID_CONFIG, id,
                ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, timeoutMs);
        var text = new StringSerializer();
        producer = new KafkaProducer<>(config, text, text);
        producer.initTransactions();
    }

    @Override
    public void close() {
        producer.close(Duration.ofSeconds(1));
    }

    Object answer(JsonNode request) throws Exception {
        switch (request.get(0).asText()) {
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(
                    request.get(1).asText(),
                    request.get(2).asInt(),
                    request.get(3).asText(),
                    request.get(4).asText())).get();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(request.toString());
        }
        return null;
    }

    /** Copies a topic, records and offsets in one transaction, until the input ends. */
    static void copy(String bootstrap, String group, String from, String to, String id) {
        Map<String, Object> config = Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
                ConsumerConfig.GROUP_ID_CONFIG, group,
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false,
                ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed",
                ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6_000,
                ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 500,
                ConsumerConfig.MAX_POLL_RECORDS_CONFIG, BATCH);
        var text = new StringDeserializer();
        try (var transacting = new Transacting(bootstrap, id, 10_000);
                var consumer = new KafkaConsumer<>(config, text, text)) {
            consumer.subscribe(List.of(from));
            var waking = new Thread(() -> {
                Main.input().forEach(line -> {});
                consumer.wakeup();
            });
            waking.setDaemon(true);
            waking.start();
            while (true) {
                var records = consumer.poll(Duration.ofSeconds(1));
                if (!records.isEmpty()) {
                    copyOnce(transacting.producer, consumer, records, to);
                }
            }
        } catch (WakeupException e) {
            return; // The input has ended.
        }
    }

    private static void copyOnce(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records,
            String to) {
        Map<TopicPartition, OffsetAndMetadata> next = new LinkedHashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(
                    new ProducerRecord<>(to, record.partition(), record.key(), record.value()));
            next.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
        producer.commitTransaction();
        Main.tell(Map.of("copied", records.count()));
    }
}
