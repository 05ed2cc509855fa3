import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Has Kafka's share consumers go through what can become of a record, and prints what they see. */
public class ShareConsumerOracle {
    private static final Duration LONG = Duration.ofSeconds(30);
    private static final Duration SHORT = Duration.ofSeconds(2);
    private static final String TOPIC = "orders";
    private static final String GROUP = "workers";

    private static String bootstrap;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        admin.createTopics(List.of(new NewTopic(TOPIC, 1, (short) 1))).all().get();
        set("share.auto.offset.reset", "earliest");
        set("share.delivery.count.limit", "3");
        produce(6);
        KafkaShareConsumer<String, String> first = consumer("first", "explicit");
        goThroughTypes(first);
        try (KafkaShareConsumer<String, String> second = consumer("second", "explicit")) {
            letALockRunOut(first, second);
        }
        closeWithRecords(first);
        readImplicitly();
        tellOffsets();
        readCommitted();
        admin.close();
        Runtime.getRuntime().halt(0);
    }

    private static void goThroughTypes(KafkaShareConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> records = poll(consumer, 6);
        consumer.acknowledge(records.get(0), AcknowledgeType.ACCEPT);
        consumer.acknowledge(records.get(1), AcknowledgeType.RELEASE);
        consumer.acknowledge(records.get(2), AcknowledgeType.REJECT);
        consumer.acknowledge(records.get(3), AcknowledgeType.ACCEPT);
        consumer.acknowledge(records.get(4), AcknowledgeType.RELEASE);
        consumer.acknowledge(records.get(5), AcknowledgeType.RENEW);
        commit(consumer);
        records = poll(consumer, 1);
        consumer.acknowledge(records.get(0), AcknowledgeType.ACCEPT);
        commit(consumer);
        records = poll(consumer, 2);
        consumer.acknowledge(records.get(0), AcknowledgeType.RELEASE);
        consumer.acknowledge(records.get(1), AcknowledgeType.ACCEPT);
        commit(consumer);
        records = poll(consumer, 1);
        // It was delivered as often as it may be.
        consumer.acknowledge(records.get(0), AcknowledgeType.RELEASE);
        commit(consumer);
        nothing(consumer);
    }

    private static void letALockRunOut(
            KafkaShareConsumer<String, String> first, KafkaShareConsumer<String, String> second)
            throws Exception {
        // Short for this alone: elsewhere a slow machine must not lose a lock.
        set("share.record.lock.duration.ms", "3000");
        produce(1);
        List<ConsumerRecord<String, String>> records = poll(first, 1);
        set("share.record.lock.duration.ms", "30000");
        List<ConsumerRecord<String, String>> again = poll(second, 1);
        first.acknowledge(records.get(0), AcknowledgeType.ACCEPT);
        commit(first);
        second.acknowledge(again.get(0), AcknowledgeType.ACCEPT);
        commit(second);
    }

    private static void closeWithRecords(KafkaShareConsumer<String, String> consumer)
            throws Exception {
        produce(2);
        poll(consumer, 2);
        consumer.close();
        System.out.println("closed");
    }

    private static void readImplicitly() throws Exception {
        try (KafkaShareConsumer<String, String> consumer = consumer("third", "implicit")) {
            poll(consumer, 2);
            commit(consumer);
            produce(1);
            poll(consumer, 1);
        }
        System.out.println("closed");
    }

    private static void readCommitted() throws Exception {
        set("share.isolation.level", "read_committed");
        Map<String, Object> config =
            Map.of("bootstrap.servers", bootstrap, "transactional.id", "writer");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (String value : List.of("aborted", "committed", "aborted again", "last")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(TOPIC, value)).get();
                producer.send(new ProducerRecord<>(TOPIC, value)).get();
                if (value.startsWith("aborted")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        try (KafkaShareConsumer<String, String> consumer = consumer("fourth", "implicit")) {
            poll(consumer, 4);
            commit(consumer);
            nothing(consumer);
        }
    }

    private static void tellOffsets() throws Exception {
        for (int tries = 0; tries < 50; tries++) {
            var told = admin.listShareGroupOffsets(Map.of(GROUP, new ListShareGroupOffsetsSpec()))
                .partitionsToOffsetInfo(GROUP).get();
            String text = told.toString();
            if (text.contains("startOffset=9") || tries == 49) {
                System.out.println(text);
                return;
            }
            Thread.sleep(200);
        }
    }

    private static List<ConsumerRecord<String, String>> poll(
            KafkaShareConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.nanoTime() + LONG.toNanos();
        while (found.size() < count && System.nanoTime() < end) {
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        }
        for (ConsumerRecord<String, String> one : found) {
            System.out.println("got " + one.offset() + " " + one.value() + " "
                + one.deliveryCount().orElse((short) -1));
        }
        return found;
    }

    private static void nothing(KafkaShareConsumer<String, String> consumer) {
        long end = System.nanoTime() + SHORT.toNanos();
        while (System.nanoTime() < end) {
            consumer.poll(Duration.ofMillis(200)).forEach(one -> System.out.println("more " + one));
        }
        System.out.println("nothing more");
    }

    private static void commit(KafkaShareConsumer<String, String> consumer) {
        Map<Integer, String> told = new TreeMap<>();
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> one : consumer.commitSync().entrySet()) {
            told.put(one.getKey().partition(), one.getValue().map(Object::toString).orElse("done"));
        }
        System.out.println("committed " + told);
    }

    private static void produce(int count) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(TOPIC, "value" + number)).get();
            }
        }
    }

    private static KafkaShareConsumer<String, String> consumer(String name, String mode) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", GROUP);
        config.put("client.id", name);
        config.put("share.acknowledgement.mode", mode);
        KafkaShareConsumer<String, String> consumer =
            new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(TOPIC));
        return consumer;
    }

    private static void set(String name, String value) throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, GROUP);
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(group, List.of(change))).all().get();
    }
}
