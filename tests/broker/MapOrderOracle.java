import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.timeline.SnapshotRegistry;
import org.apache.kafka.timeline.TimelineHashMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Plays scripts on the maps that Kafka's coordinators keep things in, a line of JSON each:
 *
 *   {"map": "timeline", "steps": [["put", KEY], ["remove", KEY], ["compute", KEY]...]}
 *
 * and prints the keys in the order in which the map goes through them. "map" is "timeline",
 * "hash", "concurrent", or one of Scala's, into which keys are only put: "mutable", "trie" and
 * "small", which is a trie when it has more than four keys; a key is a text, a number, or [TOPIC, PARTITION].
 */
public class MapOrderOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(play(JSON.readTree(line))));
        }
    }

    private static List<Object> play(JsonNode script) {
        Map<Object, Object> map = filled(script.get("map").asText(), script.get("steps"));
        List<Object> keys = new ArrayList<>();
        for (Object key : map.keySet()) {
            TopicPartition partition = key instanceof TopicPartition ? (TopicPartition) key : null;
            keys.add(partition == null ? key : List.of(partition.topic(), partition.partition()));
        }
        return keys;
    }

    private static Map<Object, Object> filled(String name, JsonNode steps) {
        switch (name) {
            case "mutable":
                scala.collection.mutable.Map<Object, Object> table =
                    new scala.collection.mutable.HashMap<>();
                for (JsonNode step : steps) {
                    table.put(key(step.get(1)), step);
                }
                return CollectionConverters.asJava(table);
            case "trie":
            case "small":
                scala.collection.immutable.Map<Object, Object> trie = name.equals("trie")
                    ? scala.collection.immutable.HashMap$.MODULE$.<Object, Object>empty()
                    : scala.collection.immutable.Map$.MODULE$.<Object, Object>empty();
                for (JsonNode step : steps) {
                    trie = trie.updated(key(step.get(1)), (Object) step);
                }
                return CollectionConverters.asJava(trie);
            default:
                return played(empty(name), steps);
        }
    }

    private static Map<Object, Object> played(Map<Object, Object> map, JsonNode steps) {
        for (JsonNode step : steps) {
            Object key = key(step.get(1));
            switch (step.get(0).asText()) {
                case "put":
                    map.put(key, step);
                    break;
                case "compute":
                    map.computeIfAbsent(key, ignored -> step);
                    break;
                default:
                    map.remove(key);
            }
        }
        return map;
    }

    private static Map<Object, Object> empty(String name) {
        switch (name) {
            case "timeline":
                return new TimelineHashMap<>(new SnapshotRegistry(new LogContext()), 0);
            case "concurrent":
                return new ConcurrentHashMap<>();
            default:
                return new HashMap<>();
        }
    }

    private static Object key(JsonNode node) {
        if (node.isArray()) {
            return new TopicPartition(node.get(0).asText(), node.get(1).asInt());
        }
        return node.isInt() ? (Object) node.asInt() : node.asText();
    }
}
