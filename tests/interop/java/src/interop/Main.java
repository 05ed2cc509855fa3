package interop;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.stream.Stream;
import org.apache.kafka.common.KafkaException;

/** Apache Kafka's Java client as a program; tests/interop/programs.py says what the lines mean. */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        String verb = arguments[0];
        String bootstrap = arguments[1];
        switch (verb) {
            case "produce" -> produce(bootstrap, arguments[2], arguments[3]);
            case "consume" -> Consuming.run(
                    bootstrap, arguments[2], arguments[3], Integer.parseInt(arguments[4]));
            case "admin" -> administer(bootstrap);
            case "transact" -> transact(
                    bootstrap, arguments[2], Integer.parseInt(arguments[3]));
            case "copy" -> Transacting.copy(
                    bootstrap, arguments[2], arguments[3], arguments[4], arguments[5]);
            default -> throw new IllegalArgumentException(verb);
        }
    }

    /** Returns the lines of the input. */
    static Stream<String> input() {
        var stream = new InputStreamReader(System.in, StandardCharsets.UTF_8);
        return new BufferedReader(stream).lines();
    }

    /** Prints a value as one line. */
    static synchronized void tell(Object value) {
        try {
            OUT.println(JSON.writeValueAsString(value));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void produce(String bootstrap, String topic, String codec) throws Exception {
        List<Line> lines = input().map(Main::record).toList();
        Producing.run(bootstrap, topic, codec, lines);
    }

    private static Line record(String line) {
        try {
            return JSON.readValue(line, Line.class);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void administer(String bootstrap) throws Exception {
        try (Administering admin = new Administering(bootstrap)) {
            serve(admin::answer);
        }
    }

    private static void transact(String bootstrap, String id, int timeoutMs) throws Exception {
        try (Transacting transacting = new Transacting(bootstrap, id, timeoutMs)) {
            serve(transacting::answer);
        }
    }

    private static void serve(Answering answering) throws Exception {
        for (String line : (Iterable<String>) input()::iterator) {
            tell(reply(answering, JSON.readTree(line)));
        }
    }

    private static Map<String, Object> reply(Answering answering, JsonNode request)
            throws Exception {
        try {
            // Not Map.of: an answer may be null.
            return Collections.singletonMap("answer", answering.answer(request));
        } catch (ExecutionException e) {
            return Map.of("error", String.valueOf(e.getCause()));
        } catch (KafkaException e) {
            return Map.of("error", String.valueOf(e));
        }
    }

    /** Carries a request out. */
    private interface Answering {
        Object answer(JsonNode request) throws Exception;
    }

    /** Returns an object of names and values, null where one is to be unset. */
    static Map<String, String> settings(JsonNode node) {
        return JSON.convertValue(node, new TypeReference<>() {});
    }

    /** A record to send. */
    record Line(String key, String value, List<List<String>> headers, long timestamp_ms) {}
}
