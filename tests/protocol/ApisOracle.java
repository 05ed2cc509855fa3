import org.apache.kafka.common.message.ApiVersionsResponseData.ApiVersion;
import org.apache.kafka.common.protocol.ApiKeys;

/** Prints the key, the name and the first and last version that a broker advertises of each API. */
public class ApisOracle {
    public static void main(String[] arguments) {
        for (ApiKeys api : ApiKeys.brokerApis()) {
            for (ApiVersion range : api.toApiVersion(false).stream().toList()) {
                System.out.println(
                    api.id + "\t" + api.name + "\t" + range.minVersion() + "\t" + range.maxVersion());
            }
        }
    }
}
