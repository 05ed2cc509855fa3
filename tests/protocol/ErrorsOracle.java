import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints the code, the name and the retriability of each of Kafka's errors. */
public class ErrorsOracle {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            System.out.println(error.code() + "\t" + error.name() + "\t" + retriable);
        }
    }
}
