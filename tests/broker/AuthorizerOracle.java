import java.net.InetAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.Property;

/**
 * Kafka's StandardAuthorizer and its audit log. A line is a set of ACLs with questions in JSON,
 * answered with what it decides and what it logs; {"error": ...} where it throws.
 */
public class AuthorizerOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final List<String> LOGGED = new ArrayList<>();
    private static final Metrics METRICS = new Metrics();
    private static int worlds = 0;

    public static void main(String[] arguments) throws Exception {
        listen();
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            System.out.println(answer(JSON.readTree(lines.nextLine())));
        }
    }

    private static void listen() {
        AbstractAppender appender =
            new AbstractAppender("audit", null, null, false, Property.EMPTY_ARRAY) {
                @Override
                public void append(LogEvent event) {
                    LOGGED.add(event.getLevel() + " " + event.getMessage().getFormattedMessage());
                }
            };
        appender.start();
        LoggerContext context = (LoggerContext) LogManager.getContext(false);
        LoggerConfig audit = new LoggerConfig("kafka.authorizer.logger", Level.ALL, false);
        audit.addAppender(appender, Level.ALL, null);
        context.getConfiguration().addLogger("kafka.authorizer.logger", audit);
        context.updateLoggers();
    }

    private static JsonNode answer(JsonNode asked) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            "super.users", asked.get("super").asText(),
            "allow.everyone.if.no.acl.found", asked.get("default").asText(),
            "node.id", "1"));
        authorizer.withPluginMetrics(new PluginMetricsImpl(METRICS, Map.of("world", "" + ++worlds)));
        Map<Uuid, StandardAcl> acls = new HashMap<>();
        for (JsonNode one : asked.get("acls")) {
            acls.put(Uuid.randomUuid(), new StandardAcl(
                ResourceType.fromCode((byte) one.get(0).asInt()),
                one.get(1).asText(),
                PatternType.fromCode((byte) one.get(2).asInt()),
                one.get(3).asText(),
                one.get(4).asText(),
                AclOperation.fromCode((byte) one.get(5).asInt()),
                AclPermissionType.fromCode((byte) one.get(6).asInt())));
        }
        authorizer.loadSnapshot(acls);
        authorizer.completeInitialLoad();
        ObjectNode answers = JSON.createObjectNode();
        ArrayNode decided = answers.putArray("questions");
        for (JsonNode one : asked.get("questions")) {
            decided.add(decide(authorizer, one));
        }
        ArrayNode found = answers.putArray("filters");
        for (JsonNode one : asked.get("filters")) {
            found.add(find(authorizer, one));
        }
        return answers;
    }

    private static JsonNode decide(StandardAuthorizer authorizer, JsonNode one) {
        LOGGED.clear();
        ObjectNode told = JSON.createObjectNode();
        AclOperation operation = AclOperation.fromCode((byte) one.get("operation").asInt());
        ResourceType kind = ResourceType.fromCode((byte) one.get("kind").asInt());
        try {
            AuthorizationResult result;
            if (one.get("name").isNull()) {
                result = authorizer.authorizeByResourceType(new Asking(one), operation, kind);
            } else {
                Action action = new Action(
                    operation,
                    new ResourcePattern(kind, one.get("name").asText(), PatternType.LITERAL),
                    one.get("references").asInt(),
                    one.get("logsAllowed").asBoolean(),
                    one.get("logsDenied").asBoolean());
                result = authorizer.authorize(new Asking(one), List.of(action)).get(0);
            }
            told.put("allowed", result == AuthorizationResult.ALLOWED);
        } catch (RuntimeException error) {
            told.put("error", error.toString());
        }
        LOGGED.forEach(told.putArray("logged")::add);
        return told;
    }

    private static JsonNode find(StandardAuthorizer authorizer, JsonNode one) {
        AclBindingFilter filter = new AclBindingFilter(
            new ResourcePatternFilter(
                ResourceType.fromCode((byte) one.get(0).asInt()),
                one.get(1).isNull() ? null : one.get(1).asText(),
                PatternType.fromCode((byte) one.get(2).asInt())),
            new AccessControlEntryFilter(
                one.get(3).isNull() ? null : one.get(3).asText(),
                one.get(4).isNull() ? null : one.get(4).asText(),
                AclOperation.fromCode((byte) one.get(5).asInt()),
                AclPermissionType.fromCode((byte) one.get(6).asInt())));
        ArrayNode found = JSON.createArrayNode();
        for (AclBinding acl : authorizer.acls(filter)) {
            found.add(StandardAcl.fromAclBinding(acl).toString());
        }
        return found;
    }

    /** Who asks, as the question says. */
    private static final class Asking implements AuthorizableRequestContext {
        private final JsonNode told;

        Asking(JsonNode told) {
            this.told = told;
        }

        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public KafkaPrincipal principal() {
            return new KafkaPrincipal(
                told.get("principal").get(0).asText(), told.get("principal").get(1).asText());
        }

        @Override
        public InetAddress clientAddress() {
            try {
                return InetAddress.getByName(told.get("host").asText());
            } catch (java.net.UnknownHostException error) {
                throw new IllegalArgumentException(error);
            }
        }

        @Override
        public int requestType() {
            return told.get("apiKey").asInt();
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "a-client";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
