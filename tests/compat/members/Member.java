import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group that says what it does, for tests/compat/storm.py: the Java client. */
public class Member implements ConsumerRebalanceListener {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> uncommitted = new HashMap<>();
    private volatile boolean ending = false;

    private Member(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("group.protocol", arguments[3]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("max.poll.records", "100");
        if (arguments[3].equals("classic")) {
            settings.put("session.timeout.ms", arguments[4]);
            settings.put("heartbeat.interval.ms", "500");
            settings.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        if (!arguments[5].isEmpty()) {
            settings.put("group.instance.id", arguments[5]);
        }
        consumer = new KafkaConsumer<>(
            settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public static void main(String[] arguments) throws InterruptedException {
        Member member = new Member(arguments);
        Thread running = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.ending = true;
            member.consumer.wakeup();
            try {
                running.join();
            } catch (InterruptedException interrupted) {
                running.interrupt();
            }
        }));
        member.run(arguments[2]);
    }

    private void run(String topic) {
        consumer.subscribe(List.of(topic), this);
        try {
            while (!ending) {
                var polled = consumer.poll(Duration.ofMillis(100));
                for (TopicPartition one : polled.partitions()) {
                    take(one, polled.records(one));
                }
                commit();
            }
        } catch (WakeupException asked) {
            // It is to end.
        }
        consumer.close();
    }

    private void take(TopicPartition partition, List<ConsumerRecord<byte[], byte[]>> records) {
        long next = records.get(records.size() - 1).offset() + 1;
        say("read", partition.partition(), records.get(0).offset(), next);
        uncommitted.put(partition, new OffsetAndMetadata(next));
    }

    private void commit() {
        if (uncommitted.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(uncommitted);
            uncommitted.forEach((one, next) -> say("done", one.partition(), next.offset()));
            uncommitted.clear();
        } catch (WakeupException asked) {
            throw asked;
        } catch (KafkaException failed) {
            // The group is about to change, or the broker is away: again after the next poll.
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        long now = System.nanoTime();
        for (TopicPartition one : partitions) {
            OffsetAndMetadata committed = committed(one);
            long offset = committed == null ? 0 : committed.offset();
            sayAt(now, "own", one.partition(), offset);
            consumer.seek(one, offset);
        }
    }

    private OffsetAndMetadata committed(TopicPartition partition) {
        while (true) {
            try {
                return consumer.committed(java.util.Set.of(partition)).get(partition);
            } catch (org.apache.kafka.common.errors.TimeoutException away) {
                // The broker is away.
            }
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        for (TopicPartition one : partitions) {
            uncommitted.remove(one);
            say("lost", one.partition());
        }
    }

    private static void say(String what, long... numbers) {
        sayAt(System.nanoTime(), what, numbers);
    }

    private static void sayAt(long time, String what, long... numbers) {
        StringBuilder line = new StringBuilder(what).append(' ').append(time);
        for (long number : numbers) {
            line.append(' ').append(number);
        }
        System.out.println(line);
        System.out.flush();
    }
}
