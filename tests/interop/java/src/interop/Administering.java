package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Answers an administrator's requests. */
final class Administering implements AutoCloseable {
    private final Admin admin;

    Administering(String bootstrap) {
        admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap));
    }

    @Override
    public void close() {
        admin.close();
    }

    Object answer(JsonNode request) throws ExecutionException, InterruptedException {
        String name = request.path(1).asText();
        return switch (request.get(0).asText()) {
            case "describe-cluster" -> describeCluster();
            case "create-topic" -> {
                NewTopic topic = new NewTopic(name, request.get(2).asInt(), (short) 1);
                topic.configs(Main.settings(request.get(3)));
                yield admin.createTopics(List.of(topic)).all().get();
            }
            case "list-topics" -> admin.listTopics().names().get();
            case "describe-topic" -> Topics.describe(admin, name).partitions().size();
            case "describe-configs" -> describeConfigs(name);
            case "alter-configs" -> alterConfigs(name, Main.settings(request.get(2)));
            case "create-partitions" -> {
                NewPartitions total = NewPartitions.increaseTo(request.get(2).asInt());
                yield admin.createPartitions(Map.of(name, total)).all().get();
            }
            case "delete-records" -> {
                TopicPartition partition = new TopicPartition(name, request.get(2).asInt());
                RecordsToDelete before = RecordsToDelete.beforeOffset(request.get(3).asLong());
                yield admin.deleteRecords(Map.of(partition, before)).all().get();
            }
            case "delete-topic" -> admin.deleteTopics(List.of(name)).all().get();
            case "list-groups" -> admin.listConsumerGroups().all().get().stream()
                    .map(ConsumerGroupListing::groupId).toList();
            case "describe-group" -> describeGroup(name);
            case "group-offsets" -> groupOffsets(name);
            case "delete-group" -> admin.deleteConsumerGroups(List.of(name)).all().get();
            default -> throw new IllegalArgumentException(request.toString());
        };
    }

    private Object describeCluster() throws ExecutionException, InterruptedException {
        var cluster = admin.describeCluster();
        return Map.of(
                "cluster_id", cluster.clusterId().get(),
                "controller", cluster.controller().get().id(),
                "brokers", cluster.nodes().get().stream()
                        .map(node -> List.of(node.id(), node.host(), node.port())).toList());
    }

    private Object describeConfigs(String topic) throws ExecutionException, InterruptedException {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Map<String, String> values = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get()
                .get(resource).entries()) {
            values.put(entry.name(), entry.value());
        }
        return values;
    }

    private Object alterConfigs(String topic, Map<String, String> settings)
            throws ExecutionException, InterruptedException {
        Collection<AlterConfigOp> changes = new ArrayList<>();
        settings.forEach((name, value) -> changes.add(new AlterConfigOp(
                new ConfigEntry(name, value),
                value == null ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        return admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    private Object describeGroup(String group) throws ExecutionException, InterruptedException {
        var found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        return Map.of("state", found.state().toString(), "members", found.members().size());
    }

    private Object groupOffsets(String group) throws ExecutionException, InterruptedException {
        Map<Integer, Long> offsets = new TreeMap<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach(
                (partition, offset) -> offsets.put(partition.partition(), offset.offset()));
        List<List<Number>> pairs = new ArrayList<>();
        offsets.forEach((partition, offset) -> pairs.add(List.of(partition, offset)));
        return pairs;
    }
}
