import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

/**
 * Answers, with Kafka's own code, one question about record batches a line.
 *
 *   read HEX              each batch and its records, in words
 *   rebuild CODEC HEX     the batches, decoded and built anew with a codec, in hex
 *   empty HEX             what is left of the batches when all their records go, in hex
 *   marker COMMIT OFFSET TIMESTAMP LEADER_EPOCH PRODUCER_ID PRODUCER_EPOCH COORDINATOR_EPOCH
 *
 * Null is "-", and bytes are "x" and their hex. What Kafka refuses is answered by "refused".
 */
public final class BatchOracle {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" ", -1));
            } catch (RuntimeException e) {
                answer = "refused " + e.toString().replace('\n', ' ');
            }
            out.println(answer);
            out.flush();
        }
    }

    private static String answer(String[] words) {
        switch (words[0]) {
            case "read":
                return read(batches(words[1]));
            case "rebuild":
                return rebuild(batches(words[2]), CompressionType.forName(words[1]));
            case "empty":
                return empty(batches(words[1]));
            case "marker":
                return marker(words);
            default:
                throw new IllegalArgumentException("no such question: " + words[0]);
        }
    }

    private static List<MutableRecordBatch> batches(String hex) {
        List<MutableRecordBatch> batches = new ArrayList<>();
        ByteBuffer buffer = ByteBuffer.wrap(HEX.parseHex(hex));
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches())
            batches.add(batch);
        return batches;
    }

    private static String read(List<MutableRecordBatch> batches) {
        StringBuilder text = new StringBuilder();
        for (MutableRecordBatch batch : batches) {
            batch.ensureValid();
            text.append("batch ").append(batch.baseOffset()).append(' ').append(batch.lastOffset())
                .append(' ').append(batch.sizeInBytes())
                .append(' ').append(batch.partitionLeaderEpoch())
                .append(' ').append(batch.checksum())
                .append(' ').append(batch.compressionType().name)
                .append(' ').append(batch.timestampType() == TimestampType.LOG_APPEND_TIME)
                .append(' ').append(batch.isTransactional())
                .append(' ').append(batch.isControlBatch())
                .append(' ').append(batch.maxTimestamp())
                .append(' ').append(batch.producerId())
                .append(' ').append(batch.producerEpoch())
                .append(' ').append(batch.baseSequence())
                .append(' ').append(batch.lastSequence())
                .append(' ').append(batch.countOrNull())
                .append(' ').append(batch.deleteHorizonMs().isPresent()
                    ? Long.toString(batch.deleteHorizonMs().getAsLong()) : "-")
                .append(';');
            for (Record record : batch) {
                text.append("record ").append(record.offset()).append(' ').append(record.timestamp())
                    .append(' ').append(octets(record.key()))
                    .append(' ').append(octets(record.value()));
                for (Header header : record.headers())
                    text.append(' ')
                        .append(octets(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))))
                        .append('=')
                        .append(octets(header.value() == null ? null : ByteBuffer.wrap(header.value())));
                text.append(';');
            }
        }
        return text.toString();
    }

    private static String rebuild(List<MutableRecordBatch> batches, CompressionType codec) {
        ByteBufferOutputStream out = new ByteBufferOutputStream(1024);
        for (MutableRecordBatch batch : batches) {
            boolean appended = batch.timestampType() == TimestampType.LOG_APPEND_TIME;
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(out, RecordBatch.CURRENT_MAGIC_VALUE,
                Compression.of(codec).build(), batch.timestampType(), batch.baseOffset(),
                appended ? batch.maxTimestamp() : RecordBatch.NO_TIMESTAMP, batch.producerId(),
                batch.producerEpoch(), batch.baseSequence(), batch.isTransactional(),
                batch.isControlBatch(), batch.partitionLeaderEpoch(), Integer.MAX_VALUE,
                batch.deleteHorizonMs().orElse(RecordBatch.NO_TIMESTAMP));
            for (Record record : batch)
                builder.append(record);
            builder.overrideLastOffset(batch.lastOffset());
            builder.build();
        }
        return written(out.buffer());
    }

    private static String empty(List<MutableRecordBatch> batches) {
        ByteBuffer buffer =
            ByteBuffer.allocate(batches.size() * DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        for (MutableRecordBatch batch : batches)
            DefaultRecordBatch.writeEmptyHeader(buffer, RecordBatch.CURRENT_MAGIC_VALUE,
                batch.producerId(), batch.producerEpoch(), batch.baseSequence(), batch.baseOffset(),
                batch.lastOffset(), batch.partitionLeaderEpoch(), batch.timestampType(),
                batch.maxTimestamp(), batch.isTransactional(), batch.isControlBatch());
        return written(buffer);
    }

    private static String marker(String[] words) {
        ControlRecordType type =
            words[1].equals("true") ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        MemoryRecords records = MemoryRecords.withEndTransactionMarker(
            Long.parseLong(words[2]), Long.parseLong(words[3]), Integer.parseInt(words[4]),
            Long.parseLong(words[5]), Short.parseShort(words[6]),
            new EndTransactionMarker(type, Integer.parseInt(words[7])));
        ByteBuffer buffer = records.buffer();
        buffer.position(buffer.limit());
        return written(buffer);
    }

    private static String written(ByteBuffer buffer) {
        ByteBuffer octets = buffer.duplicate();
        octets.flip();
        return octets(octets).substring(1);
    }

    private static String octets(ByteBuffer buffer) {
        if (buffer == null)
            return "-";
        byte[] octets = new byte[buffer.remaining()];
        buffer.duplicate().get(octets);
        return "x" + HEX.formatHex(octets);
    }
}
