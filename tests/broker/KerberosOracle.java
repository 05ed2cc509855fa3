import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.kafka.common.security.kerberos.KerberosName;
import org.apache.kafka.common.security.kerberos.KerberosShortNamer;

/** Prints the short names that Kafka's rules give: a line has a realm, a principal, and rules. */
public class KerberosOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t");
            System.out.println(answer(parts[0], parts[1], Arrays.copyOfRange(parts, 2, parts.length)));
        }
    }

    private static String answer(String realm, String principal, String[] rules) {
        KerberosShortNamer namer;
        try {
            namer = KerberosShortNamer.fromUnparsedRules(realm, Arrays.asList(rules));
        } catch (Exception e) {
            return "bad rules";
        }
        try {
            return "name " + namer.shortName(KerberosName.parse(principal));
        } catch (Exception e) {
            return "no name";
        }
    }
}
