// Logs Kafka's own admin client in, once for each line of settings, and tells what became of it.
//
//     java -cp 'LIBS/*' SaslOracle.java < lines
//
// A line is `MILLISECONDS<TAB>name=value<TAB>...`. The answer is a line: "ok", with the number of
// times that the client logged in again within the milliseconds, else the class of its error and
// the message.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;

public class SaslOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t");
            Properties settings = new Properties();
            for (int i = 1; i < parts.length; i++) {
                int equals = parts[i].indexOf('=');
                settings.put(parts[i].substring(0, equals), parts[i].substring(equals + 1));
            }
            settings.put("default.api.timeout.ms", "20000");
            settings.put("request.timeout.ms", "10000");
            System.out.println(outcome(settings, Long.parseLong(parts[0])));
        }
    }

    private static String outcome(Properties settings, long durationMs) throws Exception {
        try (Admin admin = Admin.create(settings)) {
            long end = System.currentTimeMillis() + durationMs;
            do {
                admin.describeCluster().nodes().get();
            } while (System.currentTimeMillis() < end);
            double[] again = {0, 0};
            admin.metrics().forEach((name, metric) -> {
                if (name.name().equals("successful-reauthentication-total") && name.tags().size() == 1)
                    again[0] += (Double) metric.metricValue();
                if (name.name().equals("failed-authentication-total") && name.tags().size() == 1)
                    again[1] += (Double) metric.metricValue();
            });
            return "ok " + (long) again[0] + " " + (long) again[1];
        } catch (ExecutionException error) {
            Throwable cause = error.getCause();
            return cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
    }
}
