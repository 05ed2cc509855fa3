import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Prints what Java calls encoded names, and what Kafka's rules make of names; null for an error. */
public class PrincipalOracle {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode asked = json.readTree(System.in);
        ObjectNode told = json.createObjectNode();
        ArrayNode names = told.putArray("names");
        for (JsonNode one : asked.get("names")) {
            names.add(new X500Principal(HexFormat.of().parseHex(one.asText())).getName());
        }
        ArrayNode mapped = told.putArray("mapped");
        for (JsonNode one : asked.get("mapped")) {
            String found = null;
            try {
                found = SslPrincipalMapper.fromRules(one.get(0).asText()).getName(one.get(1).asText());
            } catch (Exception refused) {
                // No rule applies, or the rules are none.
            }
            mapped.add(found);
        }
        System.out.println(json.writeValueAsString(told));
    }
}
