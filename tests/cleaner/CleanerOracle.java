import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Delayed;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's own log, and its own cleaner, for one partition at a time: a command a line.
 *
 *   open TOPIC-PARTITION NOW EXPIRATION KEY=VALUE...   a log of this directory, new or as it lies
 *   reopen START EXPIRATION KEY=VALUE...               close it and load it again
 *   now MS                          what time it is from now on
 *   append BASE64                   batches, with their offsets, as a replica takes them
 *   roll                            a new active segment
 *   configure KEY=VALUE...          the topic's settings
 *   expire                          forget producers that have been silent for too long
 *   start OFFSET                    make the records before it unreadable
 *   delete                          delete the segments in which nothing is readable
 *   segments                        answered by their base offsets
 *   clean KEYS BUFFER ROUNDS        answered, see below
 *   close                           answered by "closed"
 *
 * A cleaning is that of a cleaner thread: the manager chooses the range, the cleaner cleans it with
 * a map for so many keys and buffers of so many bytes, the checkpoint is written; again, up to
 * ROUNDS times, while the map was full before the end. It is answered by "idle", or by
 *
 *   cleaned FIRST_DIRTY FIRST_UNCLEANABLE END ROUNDS
 *
 * with the first dirty offset of the first round. The first failure since the last answer is the
 * next answer: "failed" and what it was.
 */
public final class CleanerOracle {
    private static final Set<String> ANSWERED = Set.of("segments", "clean", "close");
    private static final int MAP_ENTRY_BYTES = 24;
    private static final double LOAD_FACTOR = 0.9;

    private final File root;
    private final Clock clock = new Clock();
    private final Tasks tasks = new Tasks();
    private final LogDirFailureChannel failures = new LogDirFailureChannel(1);
    private final BrokerTopicStats stats = new BrokerTopicStats();
    private final ConcurrentHashMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>();
    private final LogCleanerManager manager;
    private UnifiedLog log;

    private CleanerOracle(File root) {
        this.root = root;
        manager = new LogCleanerManager(List.of(root), logs, failures);
    }

    public static void main(String[] arguments) throws Exception {
        CleanerOracle oracle = new CleanerOracle(new File(arguments[0]));
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        String failure = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String answer = null;
            try {
                if (failure == null || words[0].equals("close"))
                    answer = oracle.carryOut(words);
            } catch (Exception | AssertionError e) {
                failure = "failed " + words[0] + ": " + e.toString().replace('\n', ' ');
            }
            if (ANSWERED.contains(words[0])) {
                out.println(failure != null ? failure : answer);
                out.flush();
                failure = null;
            }
        }
    }

    private String carryOut(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                clock.nowMs = Long.parseLong(words[2]);
                open(new File(root, words[1]), 0L, 0L, Integer.parseInt(words[3]), config(words, 4));
                return null;
            case "reopen":
                tasks.runAll();
                log.close();
                open(log.dir(), Long.parseLong(words[1]), log.logEndOffset(),
                    Integer.parseInt(words[2]), config(words, 3));
                return null;
            case "now":
                clock.nowMs = Long.parseLong(words[1]);
                return null;
            case "append": {
                ByteBuffer batches = ByteBuffer.wrap(Base64.getDecoder().decode(words[1]));
                log.appendAsFollower(MemoryRecords.readableRecords(batches), Integer.MAX_VALUE);
                log.updateHighWatermark(log.logEndOffset());
                return null;
            }
            case "roll":
                log.roll();
                return null;
            case "configure":
                log.updateConfig(config(words, 1));
                return null;
            case "expire":
                log.removeExpiredProducers(clock.nowMs);
                return null;
            case "start":
                log.maybeIncrementLogStartOffset(Long.parseLong(words[1]),
                    LogStartOffsetIncrementReason.ClientRecordDeletion);
                return null;
            case "delete":
                log.deleteOldSegments();
                return null;
            case "segments":
                return log.logSegments().stream()
                    .map(segment -> Long.toString(segment.baseOffset()))
                    .collect(Collectors.joining(" "));
            case "clean":
                return clean(Integer.parseInt(words[1]), Integer.parseInt(words[2]),
                    Integer.parseInt(words[3]));
            case "close":
                close();
                return "closed";
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    private void open(File directory, long startOffset, long recoveryPoint, int expirationMs,
                      LogConfig config) throws Exception {
        log = UnifiedLog.create(directory, config, startOffset, recoveryPoint, tasks, stats, clock,
            Integer.MAX_VALUE, new ProducerStateManagerConfig(expirationMs, false),
            Integer.MAX_VALUE, failures, true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        logs.put(log.topicPartition(), log);
    }

    private static LogConfig config(String[] words, int first) {
        Map<String, String> settings = new HashMap<>();
        for (int at = first; at < words.length; at++) {
            int sign = words[at].indexOf('=');
            settings.put(words[at].substring(0, sign), words[at].substring(sign + 1));
        }
        return new LogConfig(settings);
    }

    private String clean(int keys, int bufferBytes, int roundsMax) throws Exception {
        int slots = (int) Math.ceil((keys + 1) / LOAD_FACTOR);
        Throttler throttler =
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner-io", "bytes", clock);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(slots * MAP_ENTRY_BYTES), bufferBytes,
            Math.max(bufferBytes, 1 << 20), LOAD_FACTOR, throttler, clock, partition -> { });
        long firstDirty = -1;
        for (int round = 1; ; round++) {
            Optional<LogToClean> found = manager.grabFilthiestCompactedLog(clock, new PreCleanStats());
            if (found.isEmpty())
                return "idle";
            LogToClean cleanable = found.get();
            firstDirty = firstDirty < 0 ? cleanable.firstDirtyOffset() : firstDirty;
            long end = cleanable.firstDirtyOffset();
            try {
                Map.Entry<Long, CleanerStats> done = cleaner.clean(cleanable);
                end = done.getKey();
            } finally {
                manager.doneCleaning(cleanable.topicPartition(), root, end);
            }
            if (end >= cleanable.firstUncleanableOffset() || round == roundsMax)
                return "cleaned " + firstDirty + " " + cleanable.firstUncleanableOffset() + " " + end
                    + " " + round;
        }
    }

    private void close() throws Exception {
        if (log == null)
            return;
        UnifiedLog closing = log;
        log = null;
        logs.clear();
        manager.updateCheckpoints(root, Optional.empty(), Optional.of(closing.topicPartition()));
        tasks.runAll();
        closing.close();
    }

    /** A clock that stands still. */
    private static final class Clock implements Time {
        private long nowMs;

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException("nobody waits");
        }

        @Override
        public void waitObject(Object lock, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException("nobody waits");
        }
    }

    /** What is scheduled once runs when its log is closed; what is to run again and again, never. */
    private static final class Tasks implements Scheduler {
        private final ArrayDeque<Runnable> waiting = new ArrayDeque<>();

        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0)
                waiting.add(task);
            return new Never();
        }

        @Override
        public void resizeThreadPool(int size) { }

        void runAll() {
            List<Runnable> taken = new ArrayList<>(waiting);
            waiting.clear();
            taken.forEach(Runnable::run);
        }
    }

    /** What a log may cancel, and nobody waits for. */
    private static final class Never extends FutureTask<Void> implements ScheduledFuture<Void> {
        Never() {
            super(() -> null);
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return Long.MAX_VALUE;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }
    }
}
