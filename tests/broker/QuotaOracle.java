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
import org.apache.kafka.server.quota.QuotaUtils;

/**
 * Kafka's own arithmetic of quotas. A line is a window, a limit and events in JSON, answered with
 * the throttle time after each event: of the rate, of the token bucket, and the average.
 */
public class QuotaOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine())
            System.out.println(answer(JSON.readTree(lines.nextLine())));
    }

    private static String answer(JsonNode asked) throws Exception {
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
