import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Connects with each of the settings; tells "ok", or the class of what it got instead. */
public class TlsClientOracle {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        ArrayNode told = json.createArrayNode();
        for (JsonNode one : json.readTree(System.in)) {
            Properties settings = new Properties();
            one.fields().forEachRemaining(field -> settings.put(field.getKey(), field.getValue().asText()));
            told.add(outcome(settings));
        }
        System.out.println(json.writeValueAsString(told));
    }

    private static String outcome(Properties settings) {
        try (Admin admin = Admin.create(settings)) {
            admin.describeCluster().nodes().get();
            exchange(settings);
            return "ok";
        } catch (ExecutionException failed) {
            return failed.getCause().getClass().getSimpleName();
        } catch (Exception failed) {
            return failed.getClass().getSimpleName() + ": " + failed.getMessage();
        }
    }

    private static void exchange(Properties settings) throws Exception {
        String topic = settings.getProperty("topic");
        String value = "v".repeat(900_000);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, 0, "k", value)).get();
        }
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            for (int tries = 0; tries < 100; tries++) {
                for (ConsumerRecord<String, String> record : consumer.poll(java.time.Duration.ofMillis(200))) {
                    if (!record.value().equals(value)) throw new IllegalStateException("another value");
                    return;
                }
            }
            throw new IllegalStateException("nothing to read");
        }
    }
}
