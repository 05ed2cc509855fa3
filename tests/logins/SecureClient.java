import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.SslAuthenticationException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes a record as somebody, each time with a producer of its own.
 *
 * A line is a topic, then names and values of settings, between tabs. The answer is a line: "ok",
 * "tls sentence" or "sasl sentence" when the broker did not let it in, "other class sentence".
 */
public class SecureClient {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            System.out.println(attempt(lines.nextLine().split("\t", -1)).replace('\n', ' '));
            System.out.flush();
        }
    }

    private static String attempt(String[] words) {
        Map<String, Object> settings = new HashMap<>();
        for (int i = 1; i < words.length; i += 2) {
            settings.put(words[i], words[i + 1]);
        }
        // Kafka's client reads a token from no file that it was not told of.
        Object token = settings.getOrDefault("sasl.oauthbearer.token.endpoint.url", "");
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token.toString());
        System.setProperty(
                "org.apache.kafka.sasl.oauthbearer.allowed.files",
                token.toString().replaceFirst("file://", ""));
        settings.put("max.block.ms", "60000");
        settings.put("delivery.timeout.ms", "60000");
        settings.put("request.timeout.ms", "30000");
        settings.put("linger.ms", "0");
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(words[0], "key", "value")).get();
            return "ok";
        } catch (ExecutionException e) {
            return kind(e.getCause());
        } catch (Exception e) {
            return kind(e);
        }
    }

    private static String kind(Throwable e) {
        for (Throwable one = e; one != null; one = one.getCause()) {
            if (one instanceof SslAuthenticationException) {
                return "tls " + one.getMessage();
            }
            if (one instanceof AuthenticationException) {
                return "sasl " + one.getMessage();
            }
        }
        return "other " + e.getClass().getSimpleName() + " " + e.getMessage() + " " + e.getCause();
    }
}
