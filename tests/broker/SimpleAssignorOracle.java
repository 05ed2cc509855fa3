import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Kafka's own assignor of share groups. A line is a group in JSON, answered with the target
 * assignment in JSON.
 */
public class SimpleAssignorOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine())
            System.out.println(assign(JSON.readTree(lines.nextLine())));
    }

    private static String assign(JsonNode asked) throws Exception {
        Map<Uuid, Integer> counts = new HashMap<>();
        asked.get("topics").fields().forEachRemaining(one ->
            counts.put(Uuid.fromString(one.getKey()), one.getValue().asInt()));
        Map<Uuid, Set<Integer>> assignable = new HashMap<>();
        asked.get("assignable").fields().forEachRemaining(one ->
            assignable.put(Uuid.fromString(one.getKey()), new HashSet<>(numbers(one.getValue()))));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        for (JsonNode member : asked.get("members")) {
            Set<Uuid> topics = new LinkedHashSet<>();
            member.get("topics").forEach(one -> topics.add(Uuid.fromString(one.asText())));
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            member.get("assignment").fields().forEachRemaining(one -> assigned.put(
                Uuid.fromString(one.getKey()), new HashSet<>(numbers(one.getValue()))));
            members.put(member.get("id").asText(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.empty(), topics, new Assignment(assigned)));
        }
        boolean alike = asked.get("homogeneous").asBoolean();
        GroupAssignment result = new SimpleAssignor().assign(
            new GroupSpecImpl(
                Collections.unmodifiableMap(members),
                alike ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS,
                Map.of(),
                Optional.of(assignable)),
            new SubscribedTopicDescriber() {
                public int numPartitions(Uuid topic) {
                    return counts.getOrDefault(topic, -1);
                }

                public Set<String> racksForPartition(Uuid topic, int partition) {
                    return Set.of();
                }
            });
        Map<String, List<Object>> told = new TreeMap<>();
        result.members().forEach((id, assignment) -> {
            List<Object> partitions = new ArrayList<>();
            assignment.partitions().forEach((topic, some) ->
                partitions.add(List.of(topic.toString(), new ArrayList<>(some))));
            told.put(id, partitions);
        });
        return JSON.writeValueAsString(told);
    }

    private static List<Integer> numbers(JsonNode array) {
        List<Integer> numbers = new ArrayList<>();
        array.forEach(one -> numbers.add(one.asInt()));
        return numbers;
    }
}
