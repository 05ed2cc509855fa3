import java.time.Duration;
import java.util.Collection;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.TreeSet;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Runs Kafka's own consumers, told what to do a line at a time:
 *
 *   start NAME TOPICS|^REGEX [PROPERTY=VALUE]...    stop NAME
 *
 * and says what happens: "NAME assigned t-0,t-1" whenever a consumer's partitions have changed,
 * "NAME read t-0@OFFSET VALUE" for a record (committed at once), "NAME stopped".
 */
public class ConsumerDriver {
    private static final Map<String, KafkaConsumer<String, String>> CONSUMERS = new ConcurrentHashMap<>();
    private static final Map<String, Future<?>> RUNNING = new ConcurrentHashMap<>();
    private static final ExecutorService POOL = Executors.newCachedThreadPool();

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ");
            if (words[0].equals("start")) {
                start(arguments[0], words);
            } else {
                CONSUMERS.get(words[1]).wakeup();
                RUNNING.get(words[1]).get();
            }
        }
        System.exit(0);
    }

    private static void start(String bootstrap, String[] words) {
        String name = words[1];
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("client.id", name);
        for (int i = 3; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties);
        CONSUMERS.put(name, consumer);
        RUNNING.put(name, POOL.submit(() -> run(name, consumer, words[2])));
    }

    private static void run(String name, KafkaConsumer<String, String> consumer, String topics) {
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                say(name, "revoked " + shown(partitions));
            }

            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            }
        };
        if (topics.startsWith("^")) {
            consumer.subscribe(new SubscriptionPattern(topics.substring(1)), listener);
        } else {
            consumer.subscribe(java.util.List.of(topics.split(",")), listener);
        }
        String last = null;
        try {
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    say(name, "read " + record.topic() + "-" + record.partition() + "@"
                        + record.offset() + " " + record.value());
                }
                String now = shown(consumer.assignment());
                if (!now.equals(last)) {
                    say(name, "assigned " + now);
                    last = now;
                }
                if (!consumer.assignment().isEmpty()) {
                    try {
                        consumer.commitSync();
                    } catch (org.apache.kafka.clients.consumer.CommitFailedException
                        | org.apache.kafka.common.errors.RebalanceInProgressException again) {
                        say(name, "did not commit: " + again.getClass().getSimpleName());
                    }
                }
            }
        } catch (WakeupException stop) {
            consumer.close();
        } catch (RuntimeException error) {
            say(name, "failed " + error);
            consumer.close();
        }
        say(name, "stopped");
    }

    private static String shown(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString)
            .collect(Collectors.toCollection(TreeSet::new)).stream().collect(Collectors.joining(","));
    }

    private static synchronized void say(String name, String what) {
        System.out.println(name + " " + what);
        System.out.flush();
    }
}
