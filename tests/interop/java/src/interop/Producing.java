package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends records. */
final class Producing {
    private Producing() {}

    /** Sends in order, idempotently, and returns once all are acknowledged. */
    static void run(String bootstrap, String topic, String codec, List<Main.Line> lines)
            throws Exception {
        // Named here because it is not the default before 3.0.
        Map<String, Object> config = Map.of(
                ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
                ProducerConfig.COMPRESSION_TYPE_CONFIG, codec,
                ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true);
        var text = new StringSerializer();
        try (var producer = new KafkaProducer<>(config, text, text)) {
            List<Future<?>> sent = new ArrayList<>();
            for (Main.Line line : lines) {
                var record = new ProducerRecord<>(
                        topic, null, line.timestamp_ms(), line.key(), line.value());
                for (List<String> header : line.headers()) {
                    record.headers().add(
                            header.get(0), header.get(1).getBytes(StandardCharsets.UTF_8));
                }
                sent.add(producer.send(record));
            }
            for (Future<?> one : sent) {
                one.get();
            }
        }
    }
}
