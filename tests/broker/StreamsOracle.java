import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataDelta;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValue;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredInternalTopic;
import org.apache.kafka.coordinator.group.streams.topics.ConfiguredTopology;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.slf4j.LoggerFactory;

/**
 * Kafka's own assignor of tasks, and its configuration of topologies. A line is JSON: a group,
 * answered with the tasks of each member, or {"topology": hex of its record, "topics": counts},
 * answered with the numbers of the topology, or with the exception.
 */
public class StreamsOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            JsonNode asked = JSON.readTree(lines.nextLine());
            Object answer = asked.has("topology") ? configure(asked) : assign(asked);
            System.out.println(JSON.writeValueAsString(answer));
        }
    }

    private static Object assign(JsonNode asked) {
        Map<String, AssignmentMemberSpec> members = new HashMap<>();
        for (JsonNode member : asked.get("members")) {
            members.put(member.get("id").asText(), new AssignmentMemberSpec(
                Optional.empty(), Optional.empty(),
                tasks(member.get("active")), tasks(member.get("standby")), Map.of(),
                member.get("process").asText(), Map.of(), Map.of(), Map.of()));
        }
        TreeMap<String, JsonNode> subtopologies = new TreeMap<>();
        asked.get("subtopologies").fields().forEachRemaining(one ->
            subtopologies.put(one.getKey(), one.getValue()));
        GroupAssignment result = new StickyTaskAssignor().assign(
            new GroupSpecImpl(
                Collections.unmodifiableMap(members),
                Map.of("num.standby.replicas", asked.get("standbys").asText())),
            new TopologyDescriber() {
                public List<String> subtopologies() {
                    return subtopologies.keySet().stream().toList();
                }

                public int maxNumInputPartitions(String id) {
                    return subtopologies.get(id).get(0).asInt();
                }

                public boolean isStateful(String id) {
                    return subtopologies.get(id).get(1).asBoolean();
                }
            });
        Map<String, List<Object>> told = new TreeMap<>();
        result.members().forEach((id, one) ->
            told.put(id, List.of(sorted(one.activeTasks()), sorted(one.standbyTasks()))));
        return told;
    }

    private static Map<String, Set<Integer>> tasks(JsonNode asked) {
        Map<String, Set<Integer>> tasks = new HashMap<>();
        asked.fields().forEachRemaining(one -> {
            Set<Integer> partitions = new HashSet<>();
            one.getValue().forEach(partition -> partitions.add(partition.asInt()));
            tasks.put(one.getKey(), partitions);
        });
        return tasks;
    }

    private static Map<String, Object> sorted(Map<String, Set<Integer>> tasks) {
        Map<String, Object> told = new TreeMap<>();
        tasks.forEach((id, some) -> told.put(id, new TreeSet<>(some)));
        return told;
    }

    private static Object configure(JsonNode asked) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(asked.get("topology").asText()));
        StreamsTopology topology = StreamsTopology.fromRecord(
            new StreamsGroupTopologyValue(new ByteBufferAccessor(bytes), (short) 0));
        Map<String, Object> told = new LinkedHashMap<>();
        try {
            ConfiguredTopology made = InternalTopicManager.configureTopics(
                LoggerFactory.getLogger("oracle"), "g", "m", 0L, topology,
                image(asked.get("topics")), Time.SYSTEM);
            made.topicConfigurationException().ifPresent(problem ->
                told.put("problem", List.of(problem.status().code(), problem.getMessage())));
            made.subtopologies().ifPresent(some -> {
                Map<String, Object> each = new LinkedHashMap<>();
                some.forEach((id, one) -> each.put(id, List.of(
                    one.numberOfTasks(), topics(one.repartitionSourceTopics()),
                    topics(one.stateChangelogTopics()))));
                told.put("subtopologies", each);
            });
            told.put("missing", new ArrayList<>(made.internalTopicsToBeCreated().keySet()));
        } catch (RuntimeException refused) {
            told.put("refused", refused.getClass().getSimpleName());
        }
        return told;
    }

    private static List<Object> topics(Map<String, ConfiguredInternalTopic> topics) {
        List<Object> told = new ArrayList<>();
        topics.values().forEach(one -> told.add(List.of(
            one.name(), one.numberOfPartitions(), one.replicationFactor().orElse((short) 0),
            new TreeMap<>(one.topicConfigs()))));
        return told;
    }

    private static CoordinatorMetadataImage image(JsonNode topics) {
        return new CoordinatorMetadataImage() {
            public Set<Uuid> topicIds() {
                return Set.of();
            }

            public Set<String> topicNames() {
                return Set.of();
            }

            public Optional<TopicMetadata> topicMetadata(String name) {
                return topics.has(name) ? Optional.of(topic(name, topics)) : Optional.empty();
            }

            public Optional<TopicMetadata> topicMetadata(Uuid id) {
                return Optional.empty();
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
        };
    }

    private static CoordinatorMetadataImage.TopicMetadata topic(String name, JsonNode topics) {
        return new CoordinatorMetadataImage.TopicMetadata() {
            public String name() {
                return name;
            }

            public Uuid id() {
                return Uuid.ZERO_UUID;
            }

            public int partitionCount() {
                return topics.get(name).asInt();
            }

            public List<String> partitionRacks(int partition) {
                return List.of();
            }
        };
    }
}
