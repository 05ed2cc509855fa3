package streams;

import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts words exactly once, each count an update in the output, until its input ends.
 *
 * <p>Arguments: bootstrap servers, folder of the state stores, input topic, output topic, and the
 * protocol of its group, classic or streams.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) throws Exception {
        try (KafkaStreams streams = new KafkaStreams(
                counting(arguments[2], arguments[3]).build(),
                settings(arguments[0], arguments[1], arguments[4]))) {
            CountDownLatch ended = new CountDownLatch(1);
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                return StreamThreadExceptionResponse.REPLACE_THREAD;
            });
            streams.setStateListener((now, before) -> {
                System.out.println("{\"state\": \"" + now + "\"}");
                if (now == KafkaStreams.State.ERROR) {
                    ended.countDown();
                }
            });
            streams.start();
            Thread reader = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) {}
                } catch (java.io.IOException ignored) {
                    // as good as its end
                }
                ended.countDown();
            });
            reader.setDaemon(true);
            reader.start();
            ended.await();
        }
    }

    private static StreamsBuilder counting(String input, String output) {
        // Nothing is held back in a cache, so the output has every count that there ever was.
        Map<String, String> changelog = Map.of(
                TopicConfig.SEGMENT_BYTES_CONFIG, String.valueOf(1 << 20),
                TopicConfig.MIN_CLEANABLE_DIRTY_RATIO_CONFIG, "0.01");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                        .withLoggingEnabled(changelog))
                .toStream()
                .mapValues(count -> String.valueOf(count))
                .to(output, Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }

    private static Properties settings(String bootstrap, String state, String protocol) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, state);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, protocol);
        // So the place of one that was killed is taken soon; brokers set it for a streams group.
        if (protocol.equals("classic")) {
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 6_000);
            settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 500);
        }
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 10_000);
        return settings;
    }
}
