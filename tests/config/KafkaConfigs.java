// Tells what Apache Kafka's own classes make of options and values, as JSON for the tests.
//
//     java -cp 'LIBS/*' KafkaConfigs.java < questions.json > answers.json
//
// Questions: "values" [scope, name, text], "properties" [text], "describe" {static, topic},
// "dynamic" {values, perBroker}, "brokers" {properties}, "topics" {properties},
// "provided" {properties}, "jaas" [text].

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.StringReader;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import javax.security.auth.login.AppConfigurationEntry;
import kafka.server.ConfigHelper;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResourceResult;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsSynonym;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class KafkaConfigs {
    private static final ConfigDef TOPIC = LogConfig.configDefCopy();
    private static final ConfigDef BROKER = AbstractKafkaConfig.CONFIG_DEF;

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode questions = json.readTree(System.in);
        Map<String, Object> answers = new LinkedHashMap<>();
        answers.put("topic", options(TOPIC));
        answers.put("broker", options(BROKER));
        answers.put("synonyms", synonyms());
        answers.put("updates", DynamicBrokerConfig.dynamicConfigUpdateModes());
        List<Object> values = new ArrayList<>();
        for (JsonNode one : questions.get("values")) values.add(value(one));
        answers.put("values", values);
        List<Object> properties = new ArrayList<>();
        for (JsonNode one : questions.get("properties")) properties.add(load(one.asText()));
        answers.put("properties", properties);
        List<Object> described = new ArrayList<>();
        for (JsonNode one : questions.get("describe")) described.add(describe(one));
        answers.put("describe", described);
        List<Object> dynamic = new ArrayList<>();
        for (JsonNode one : questions.get("dynamic")) dynamic.add(dynamic(one));
        answers.put("dynamic", dynamic);
        List<Object> brokers = new ArrayList<>();
        for (JsonNode one : questions.get("brokers"))
            brokers.add(error(() -> KafkaConfig.fromProps(properties(one))));
        answers.put("brokers", brokers);
        List<Object> topics = new ArrayList<>();
        for (JsonNode one : questions.get("topics"))
            topics.add(error(() -> LogConfig.validate(strings(one))));
        answers.put("topics", topics);
        List<Object> jaas = new ArrayList<>();
        for (JsonNode one : questions.get("jaas")) jaas.add(jaas(one.asText()));
        answers.put("jaas", jaas);
        List<Object> provided = new ArrayList<>();
        for (JsonNode one : questions.get("provided")) provided.add(provided(one));
        answers.put("provided", provided);
        json.writeValue(System.out, answers);
    }

    private static Map<String, Object> options(ConfigDef definition) {
        Map<String, Object> found = new TreeMap<>();
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            Map<String, Object> facts = new HashMap<>();
            facts.put("type", key.type.name());
            facts.put("required", !key.hasDefault());
            facts.put("default", key.hasDefault()
                ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            facts.put("valid", key.validator == null ? "" : key.validator.toString());
            facts.put("internal", key.internalConfig);
            found.put(key.name, facts);
        }
        return found;
    }

    private static Map<String, Object> synonyms() {
        Map<String, Object> found = new TreeMap<>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, line) -> {
            List<Object> names = new ArrayList<>();
            for (ConfigSynonym one : line)
                names.add(Arrays.asList(one.name(), one.converter().apply("1")));
            found.put(name, names);
        });
        return found;
    }

    private static Map<String, Object> value(JsonNode question) {
        ConfigDef definition = question.get(0).asText().equals("topic") ? TOPIC : BROKER;
        ConfigDef.ConfigKey key = definition.configKeys().get(question.get(1).asText());
        Map<String, Object> answer = new HashMap<>();
        try {
            ConfigDef alone = new ConfigDef().define(key);
            Object parsed = alone.parse(Map.of(key.name, question.get(2).asText())).get(key.name);
            answer.put("value", ConfigDef.convertToString(parsed, key.type));
        } catch (RuntimeException problem) {
            answer.put("error", problem.getMessage());
        }
        return answer;
    }

    private static Map<String, String> load(String text) throws Exception {
        Properties loaded = new Properties();
        try {
            loaded.load(new StringReader(text));
        } catch (IllegalArgumentException malformed) {
            return null;
        }
        Map<String, String> found = new TreeMap<>();
        loaded.forEach((key, value) -> found.put((String) key, (String) value));
        return found;
    }

    private static Map<String, Object> provided(JsonNode question) {
        try {
            return new AbstractConfig(new ConfigDef(), strings(question), false).originals();
        } catch (RuntimeException problem) {
            return null;
        }
    }

    private static Map<String, Object> describe(JsonNode question) throws Exception {
        KafkaConfig config = KafkaConfig.fromProps(properties(question.get("static")), false);
        ConfigHelper helper = new ConfigHelper(null, config, null);
        Properties overrides = properties(question.get("topic"));
        LogConfig topic = LogConfig.fromProps(config.extractLogConfigMap(), overrides);
        Map<String, Object> topicEntries = new TreeMap<>();
        topic.nonInternalValues().forEach((name, value) -> topicEntries.put(name, entry(
            helper.createTopicConfigEntry(topic, overrides, true, false, name, value))));
        Method create = null;
        for (Method one : ConfigHelper.class.getDeclaredMethods())
            if (one.getName().equals("createBrokerConfigEntry")) create = one;
        create.setAccessible(true);
        Map<String, Object> brokerEntries = new TreeMap<>();
        for (Map.Entry<String, ?> one : config.nonInternalValues().entrySet())
            brokerEntries.put(one.getKey(), entry((DescribeConfigsResourceResult)
                create.invoke(helper, true, true, false, one.getKey(), one.getValue())));
        for (Map.Entry<String, ?> one : config.originals().entrySet())
            if (one.getKey().startsWith("listener.name."))
                brokerEntries.put(one.getKey(), entry((DescribeConfigsResourceResult)
                    create.invoke(helper, true, true, false, one.getKey(), one.getValue())));
        return Map.of("topic", topicEntries, "broker", brokerEntries);
    }

    private static Map<String, Object> entry(DescribeConfigsResourceResult result) {
        Map<String, Object> facts = new HashMap<>();
        facts.put("value", result.value());
        facts.put("source", (int) result.configSource());
        facts.put("sensitive", result.isSensitive());
        facts.put("read_only", result.readOnly());
        facts.put("type", (int) result.configType());
        List<Object> line = new ArrayList<>();
        for (DescribeConfigsSynonym one : result.synonyms())
            line.add(Arrays.asList(one.name(), one.value(), (int) one.source()));
        facts.put("synonyms", line);
        return facts;
    }

    private static String dynamic(JsonNode question) {
        return error(() -> DynamicBrokerConfig.validateConfigs(
            properties(question.get("values")), question.get("perBroker").asBoolean()));
    }

    private static List<Object> jaas(String text) {
        try {
            AppConfigurationEntry entry = JaasContext.loadClientContext(
                Map.of("sasl.jaas.config", new Password(text))).configurationEntries().get(0);
            // An option named by a number has no name then; none can be meant.
            if (entry.getOptions().containsKey(null)) return null;
            return Arrays.asList(entry.getLoginModuleName(), entry.getOptions());
        } catch (RuntimeException problem) {
            return null;
        }
    }

    private interface Act {
        void run() throws Exception;
    }

    private static String error(Act act) {
        try {
            act.run();
            return null;
        } catch (Exception problem) {
            return problem.getMessage();
        }
    }

    private static Properties properties(JsonNode node) {
        Properties found = new Properties();
        found.putAll(strings(node));
        return found;
    }

    private static Map<String, String> strings(JsonNode node) {
        Map<String, String> found = new LinkedHashMap<>();
        node.fields().forEachRemaining(one -> found.put(one.getKey(), one.getValue().asText()));
        return found;
    }
}
