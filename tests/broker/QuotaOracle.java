import java.net.InetAddress;
import java.util.Optional;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.QuotaType;
import org.apache.kafka.server.quota.QuotaUtils;

/**
 * Kafka's own arithmetic of quotas. A line is a window, a limit and events in JSON, answered with
 * the throttle time after each event: of the rate, of the token bucket, and the average. Or it is
 * quotas of clients and what these send, answered with the throttle time of each.
 */
public class QuotaOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine())
            System.out.println(answer(JSON.readTree(lines.nextLine())));
        System.exit(0);
    }

    /** Throttle times of clients, while quotas of users and client ids change. */
    private static String clients(JsonNode asked) throws Exception {
        Metrics metrics = new Metrics();
        ClientQuotaManager manager = new ClientQuotaManager(
            new ClientQuotaManagerConfig(asked.get("samples").asInt(), 1),
            metrics, QuotaType.PRODUCE, Time.SYSTEM, "");
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode step : asked.get("steps")) {
            JsonNode user = step.get("user");
            JsonNode client = step.get("client-id");
            if (step.has("limit")) {
                Optional<ConfigEntity> userEntity = user == null ? Optional.empty()
                    : Optional.of(user.isNull() ? ClientQuotaManager.DEFAULT_USER_ENTITY
                        : new ClientQuotaManager.UserEntity(user.asText()));
                Optional<ConfigEntity> clientEntity = client == null ? Optional.empty()
                    : Optional.of(client.isNull() ? ClientQuotaManager.DEFAULT_USER_CLIENT_ID
                        : new ClientQuotaManager.ClientIdEntity(client.asText()));
                manager.updateQuota(userEntity, clientEntity, step.get("limit").isNull()
                    ? Optional.empty()
                    : Optional.of(new Quota(step.get("limit").asDouble(), true)));
            } else {
                Session session = new Session(
                    new KafkaPrincipal("User", user.asText()), InetAddress.getLoopbackAddress());
                answers.add(manager.recordAndGetThrottleTimeMs(
                    session, client.asText(), step.get("size").asDouble(), step.get("at").asLong()));
            }
        }
        manager.initiateShutdown();
        metrics.close();
        return JSON.writeValueAsString(answers);
    }

    private static String answer(JsonNode asked) throws Exception {
        if (asked.has("steps"))
            return clients(asked);
        double limit = asked.get("limit").asDouble();
        MetricConfig config = new MetricConfig()
            .timeWindow(asked.get("sample_ms").asLong(), TimeUnit.MILLISECONDS)
            .samples(asked.get("samples").asInt())
            .quota(new Quota(limit, true));
        Metrics metrics = new Metrics();
        Sensor rate = metrics.sensor("rate");
        rate.add(metrics.metricName("rate", "test"), new Rate(), config);
        Sensor bucket = metrics.sensor("bucket");
        bucket.add(metrics.metricName("bucket", "test"), new TokenBucket(), config);
        Avg average = new Avg();
        ArrayNode answers = JSON.createArrayNode();
        for (JsonNode event : asked.get("events")) {
            long now = event.get(0).asLong();
            double value = event.get(1).asDouble();
            ArrayNode row = answers.addArray();
            try {
                rate.record(value, now, true);
                row.add(0);
            } catch (QuotaViolationException violation) {
                row.add(QuotaUtils.throttleTime(violation, now));
            }
            try {
                bucket.record(value, now, true);
                row.add(0);
            } catch (QuotaViolationException violation) {
                row.add(Math.round(-violation.value() / violation.bound() * 1000));
            }
            average.record(new MetricConfig(), value, now);
            row.add(average.measure(new MetricConfig(), now));
        }
        metrics.close();
        return JSON.writeValueAsString(answers);
    }
}
