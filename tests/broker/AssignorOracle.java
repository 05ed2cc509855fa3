import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's own assignors and topic hashes. A line is a group in JSON, answered with the target
 * assignment in JSON; or {"hash": name, "id": ..., "racks": [[...], ...]}, answered with the hash
 * of that topic and the hash of a group that reads it and another of the same hash.
 */
public class AssignorOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            JsonNode asked = JSON.readTree(lines.nextLine());
            System.out.println(asked.has("hash") ? hash(asked) : assign(asked));
        }
    }

    private static String assign(JsonNode asked) throws Exception {
        Map<Uuid, Integer> counts = new HashMap<>();
        asked.get("topics").fields().forEachRemaining(one ->
            counts.put(Uuid.fromString(one.getKey()), one.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (JsonNode member : asked.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(one -> topics.add(Uuid.fromString(one.asText())));
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            member.get("assignment").fields().forEachRemaining(one -> {
                List<Integer> partitions = new ArrayList<>();
                one.getValue().forEach(partition -> partitions.add(partition.asInt()));
                Uuid topic = Uuid.fromString(one.getKey());
                assigned.put(topic, new HashSet<>(partitions));
                partitions.forEach(partition ->
                    owners.computeIfAbsent(topic, __ -> new HashMap<>()).put(partition, id));
            });
            JsonNode instance = member.get("instance");
            members.put(id, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                instance.isNull() ? Optional.empty() : Optional.of(instance.asText()),
                topics,
                new Assignment(assigned)));
        }
        boolean alike = asked.get("homogeneous").asBoolean();
        ConsumerGroupPartitionAssignor assignor = asked.get("assignor").asText().equals("range")
            ? new RangeAssignor() : new UniformAssignor();
        GroupAssignment result = assignor.assign(
            new GroupSpecImpl(
                Collections.unmodifiableMap(members),
                alike ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS,
                owners),
            new SubscribedTopicDescriber() {
                public int numPartitions(Uuid topic) {
                    return counts.getOrDefault(topic, -1);
                }

                public Set<String> racksForPartition(Uuid topic, int partition) {
                    return Set.of();
                }
            });
        Map<String, Map<String, List<Integer>>> told = new TreeMap<>();
        result.members().forEach((id, assignment) -> {
            Map<String, List<Integer>> partitions = new LinkedHashMap<>();
            assignment.partitions().forEach((topic, some) ->
                partitions.put(topic.toString(), new ArrayList<>(some)));
            told.put(id, partitions);
        });
        return JSON.writeValueAsString(told);
    }

    private static String hash(JsonNode asked) {
        String name = asked.get("hash").asText();
        List<List<String>> racks = new ArrayList<>();
        asked.get("racks").forEach(some -> {
            List<String> of = new ArrayList<>();
            some.forEach(rack -> of.add(rack.asText()));
            racks.add(of);
        });
        CoordinatorMetadataImage.TopicMetadata topic = new CoordinatorMetadataImage.TopicMetadata() {
            public String name() {
                return name;
            }

            public Uuid id() {
                return Uuid.fromString(asked.get("id").asText());
            }

            public int partitionCount() {
                return racks.size();
            }

            public List<String> partitionRacks(int partition) {
                return racks.get(partition);
            }
        };
        long hash = Utils.computeTopicHash(name, new CoordinatorMetadataImage() {
            public Set<Uuid> topicIds() {
                return Set.of(topic.id());
            }

            public Set<String> topicNames() {
                return Set.of(name);
            }

            public Optional<TopicMetadata> topicMetadata(String name) {
                return Optional.of(topic);
            }

            public Optional<TopicMetadata> topicMetadata(Uuid id) {
                return Optional.of(topic);
            }

            public CoordinatorMetadataDelta emptyDelta() {
                return null;
            }

            public long version() {
                return 0;
            }

            public boolean isEmpty() {
                return false;
            }
        });
        return "[" + hash + ", " + Utils.computeGroupHash(Map.of(name, hash, "a", 7L)) + "]";
    }
}
