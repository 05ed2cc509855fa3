import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.security.Permission;
import java.security.Policy;
import java.security.ProtectionDomain;
import java.util.Arrays;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools in one process, each command on a thread of its own.
 *
 * A command is a line of words between tabs: a number, the tool's class, its arguments. The
 * answer, whenever the command has ended, is a line "number status bytes bytes", then what it
 * has printed to standard output and to standard error. A tool that exits goes no further, as
 * if its process had ended. One that does not end is answered for with the status 124.
 */
public class ToolsOracle {
    private static final int TIMEOUT_S = 120;
    private static final InheritableThreadLocal<Run> CURRENT = new InheritableThreadLocal<>();
    private static final PrintStream ANSWERS = System.out;

    @SuppressWarnings("removal")
    public static void main(String[] arguments) {
        System.setOut(new PrintStream(new Routed(run -> run.out), true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(new Routed(run -> run.err), true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> CURRENT.get().exit(status));
        Exit.setHaltProcedure((status, message) -> CURRENT.get().exit(status));
        Policy.setPolicy(new Everything());
        System.setSecurityManager(new ExitsOnly());
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split("\t", -1);
            begin(() -> serve(words));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void serve(String[] words) {
        Run run = new Run();
        begin(() -> {
            CURRENT.set(run);
            run.main(words[1], Arrays.copyOfRange(words, 2, words.length));
        });
        try {
            run.ended.await(TIMEOUT_S, TimeUnit.SECONDS);
            answer(words[0], run);
        } catch (InterruptedException | IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static synchronized void answer(String number, Run run) throws IOException {
        byte[] out = run.out.toByteArray();
        byte[] err = run.err.toByteArray();
        String head = String.join(" ", number, "" + run.status, "" + out.length, "" + err.length);
        ANSWERS.write((head + "\n").getBytes(StandardCharsets.UTF_8));
        ANSWERS.write(out);
        ANSWERS.write(err);
        ANSWERS.flush();
    }

    private static void begin(Runnable body) {
        Thread thread = new Thread(body);
        thread.setDaemon(true);
        thread.start();
    }

    /** One command: what it has printed, and how it ended. */
    private static class Run {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final CountDownLatch ended = new CountDownLatch(1);
        volatile int status = 124;

        void main(String name, String[] arguments) {
            try {
                Method main = Class.forName(name).getMethod("main", String[].class);
                main.invoke(null, (Object) arguments);
                end(0);
            } catch (InvocationTargetException e) {
                e.getCause().printStackTrace();
                end(1);
            } catch (ReflectiveOperationException e) {
                e.printStackTrace();
                end(1);
            }
        }

        void exit(int code) {
            end(code);
            try {
                new CountDownLatch(1).await();
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        }

        private void end(int code) {
            status = code;
            ended.countDown();
        }
    }

    /** Ends the command whose arguments argparse4j refuses, which exits by itself. */
    @SuppressWarnings("removal")
    private static class ExitsOnly extends SecurityManager {
        @Override
        public void checkExit(int status) {
            Run run = CURRENT.get();
            if (run != null) {
                run.exit(status);
            }
        }

        @Override
        public void checkPermission(Permission permission) {
        }
    }

    /** Allows all, JMX too, which asks the policy itself. */
    @SuppressWarnings("removal")
    private static class Everything extends Policy {
        @Override
        public boolean implies(ProtectionDomain domain, Permission permission) {
            return true;
        }
    }

    /** Hands on what a thread prints to the command that the thread belongs to. */
    private static class Routed extends OutputStream {
        private final Function<Run, OutputStream> choice;

        Routed(Function<Run, OutputStream> choice) {
            this.choice = choice;
        }

        @Override
        public void write(int b) throws IOException {
            write(new byte[] {(byte) b}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int start, int length) throws IOException {
            Run run = CURRENT.get();
            if (run != null) {
                choice.apply(run).write(bytes, start, length);
            }
        }
    }
}
