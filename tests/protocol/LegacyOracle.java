import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Writes and reads messages of magic 0 and 1 with Kafka's own code; one question a line.
 *
 *   build MAGIC CODEC APPEND_TIME OFFSET TIMESTAMP KEY VALUE ...   the entries, in hex
 *   read HEX                                                       each entry, in words
 *
 * Null is "-", other bytes are "x" and their hex; so is the append time of records that have
 * their own. What Kafka refuses is answered by "refused".
 */
public final class LegacyOracle {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                answer = words[0].equals("build") ? build(words) : read(words[1]);
            } catch (RuntimeException e) {
                answer = "refused " + e.toString().replace('\n', ' ');
            }
            out.println(answer);
            out.flush();
        }
    }

    private static String build(String[] words) {
        byte magic = Byte.parseByte(words[1]);
        boolean appended = !words[3].equals("-");
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : appended ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        ByteBufferOutputStream out = new ByteBufferOutputStream(1024);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(out, magic,
            Compression.of(CompressionType.forName(words[2])).build(), type,
            Long.parseLong(words[4]), appended ? Long.parseLong(words[3]) : RecordBatch.NO_TIMESTAMP,
            RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE,
            false, false, RecordBatch.NO_PARTITION_LEADER_EPOCH, Integer.MAX_VALUE);
        for (int at = 4; at < words.length; at += 4)
            builder.appendWithOffset(Long.parseLong(words[at]), Long.parseLong(words[at + 1]),
                bytes(words[at + 2]), bytes(words[at + 3]));
        ByteBuffer built = builder.build().buffer();
        byte[] octets = new byte[built.remaining()];
        built.get(octets);
        return HEX.formatHex(octets);
    }

    private static String read(String hex) {
        StringBuilder text = new StringBuilder();
        ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(hex));
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
            batch.ensureValid();
            text.append("entry ").append(batch.lastOffset()).append(' ')
                .append(batch.sizeInBytes()).append(' ').append(batch.magic()).append(' ')
                .append(batch.checksum()).append(' ').append(batch.compressionType().name)
                .append(' ').append(batch.timestampType() == TimestampType.LOG_APPEND_TIME)
                .append(' ').append(batch.maxTimestamp()).append(';');
            for (Record record : batch)
                text.append("record ").append(record.offset()).append(' ')
                    .append(record.timestamp()).append(' ').append(octets(record.key()))
                    .append(' ').append(octets(record.value())).append(';');
        }
        return text.toString();
    }

    private static byte[] bytes(String word) {
        return word.equals("-") ? null : HEX.parseHex(word.substring(1));
    }

    private static String octets(ByteBuffer buffer) {
        if (buffer == null)
            return "-";
        byte[] octets = new byte[buffer.remaining()];
        buffer.duplicate().get(octets);
        return "x" + HEX.formatHex(octets);
    }
}
