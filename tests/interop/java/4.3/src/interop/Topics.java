package interop;

import java.util.List;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.TopicDescription;

/** What the generations of the client name differently: 3.1 brought this name, 4.0 took the old. */
final class Topics {
    private Topics() {}

    static TopicDescription describe(Admin admin, String topic)
            throws ExecutionException, InterruptedException {
        return admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get();
    }
}
