// @confluentinc/kafka-javascript, librdkafka under KafkaJS' names, behind the interop lines.

import confluent from "@confluentinc/kafka-javascript";

import { Taker, messagesToSend, main, tell } from "./lines.js";

const { ConsumerGroupStates, ErrorCodes, Kafka, logLevel } = confluent.KafkaJS;

function connect(bootstrap) {
  return new Kafka({ kafkaJS: { brokers: bootstrap.split(','), logLevel: logLevel.NOTHING } });
}

async function produce(bootstrap, topic, codec, records) {
  const producer = connect(bootstrap).producer({
    kafkaJS: { idempotent: true },
    "compression.type": codec,
  });
  await producer.connect();
  await producer.send({
    topic,
    messages: messagesToSend(records),
  });
  await producer.disconnect();
}

async function consume(bootstrap, topic, group, count, ended) {
  const consumer = connect(bootstrap).consumer({
    kafkaJS: { groupId: group, fromBeginning: true, autoCommit: false },
    rebalance_cb: (error, partitions) => {
      const assigned = error.code === ErrorCodes.ERR__ASSIGN_PARTITIONS ? partitions : [];
      tell({ assigned: assigned.map(({ partition }) => partition).sort((a, b) => a - b) });
    },
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic] });
  const taker = new Taker(topic, count, (offsets) => consumer.commitOffsets(offsets));
  await consumer.run({ eachBatch: ({ batch }) => taker.take(batch) });
  await Promise.race([taker.done, ended]);
  await consumer.disconnect();
}

async function admin(bootstrap) {
  const client = connect(bootstrap).admin();
  await client.connect();
  return { ...topicVerbs(client), ...groupVerbs(client) };
}

function topicVerbs(client) {
  return {
    "create-topic": async (topic, numPartitions, settings) => {
      const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }));
      const topics = [{ topic, numPartitions, replicationFactor: 1, configEntries }];
      // This is how the library tells TOPIC_ALREADY_EXISTS, as KafkaJS does.
      if (!(await client.createTopics({ topics }))) throw new Error("the topic exists");
    },
    "list-topics": () => client.listTopics(),
    "describe-topic": async (topic) => {
      const found = await client.fetchTopicMetadata({ topics: [topic] });
      return (found.topics ?? found)[0].partitions.length;
    },
    "delete-records": (topic, partition, offset) =>
      client.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(offset) }] }),
    "delete-topic": (topic) => client.deleteTopics({ topics: [topic] }),
  };
}

function groupVerbs(client) {
  return {
    "list-groups": async () => (await client.listGroups()).groups.map(({ groupId }) => groupId),
    "describe-group": async (group) => {
      const { groups } = await client.describeGroups([group]);
      return { state: stateName(groups[0].state), members: groups[0].members.length };
    },
    "group-offsets": async (groupId, topic) => {
      const [fetched] = await client.fetchOffsets({ groupId, topics: [topic] });
      return fetched.partitions
        .map(({ partition, offset }) => [partition, Number(offset)])
        .filter(([, offset]) => offset >= 0)
        .sort(([a], [b]) => a - b);
    },
    "delete-group": async (group) => {
      await client.deleteGroups([group]);
    },
  };
}

/** Return a state's name as the broker gives it: STABLE is Stable. */
function stateName(state) {
  const [name] = Object.entries(ConsumerGroupStates).find(([, number]) => number === state);
  return name[0] + name.slice(1).toLowerCase();
}

await main({ produce, consume, admin });
