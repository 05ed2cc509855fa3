import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Scanner;

import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;

/**
 * Reads records of __consumer_offsets with Kafka's own code, one a line: key and value in
 * base64, "-" for null. Answers with Kafka's JSON of both, and whether Kafka, writing the record
 * again, makes the same bytes. A line "hash group count" is answered with the group's partition.
 */
public class GroupRecordsOracle {
    public static void main(String[] arguments) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split("\t", -1);
            if (words[0].equals("hash")) {
                int count = Integer.parseInt(words[2]);
                System.out.println(Utils.abs(words[1].hashCode()) % count);
                continue;
            }
            byte[] key = bytes(words[0]);
            byte[] value = bytes(words[1]);
            CoordinatorRecord record = serde.deserialize(
                ByteBuffer.wrap(key), value == null ? null : ByteBuffer.wrap(value));
            boolean same = java.util.Arrays.equals(key, serde.serializeKey(record))
                && java.util.Arrays.equals(value, serde.serializeValue(record));
            ApiMessage message = record.key();
            String keyJson = CoordinatorRecordJsonConverters
                .writeRecordKeyAsJson(message).toString();
            String valueJson = value == null ? "null" : CoordinatorRecordJsonConverters
                .writeRecordValueAsJson(record.value().message(), record.value().version())
                .toString();
            System.out.println(same + "\t" + keyJson + "\t" + valueJson);
        }
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }
}
