// KafkaJS behind the interop lines.

import kafkajs from "kafkajs";
import LZ4Codec from "kafkajs-lz4";
import SnappyCodec from "kafkajs-snappy";
import { ZstdCodec } from "zstd-codec";

import { Taker, messagesToSend, main, tell } from "./lines.js";

const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs;

const zstd = await new Promise((resolve) => ZstdCodec.run((codec) => resolve(new codec.Simple())));

// KafkaJS itself knows gzip only; the others are its plug-ins, and zstd a library made one here.
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = new LZ4Codec().codec;
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

function connect(bootstrap) {
  return new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.ERROR, logCreator });
}

/** Log to standard error: standard output is for the lines. */
function logCreator() {
  return ({ namespace, log }) => console.error(namespace, log.message, log.error ?? "");
}

async function produce(bootstrap, topic, codec, records) {
  const producer = connect(bootstrap).producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  await producer.send({
    topic,
    compression: CODECS[codec],
    messages: messagesToSend(records),
  });
  await producer.disconnect();
}

async function consume(bootstrap, topic, group, count, ended) {
  const consumer = connect(bootstrap).consumer({ groupId: group });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    tell({ assigned: payload.memberAssignment[topic] ?? [] });
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const taker = new Taker(topic, count, (offsets) => consumer.commitOffsets(offsets));
  await consumer.run({ autoCommit: false, eachBatch: ({ batch }) => taker.take(batch) });
  await Promise.race([taker.done, ended]);
  await consumer.disconnect();
}

async function admin(bootstrap) {
  const client = connect(bootstrap).admin();
  await client.connect();
  return {
    "describe-cluster": async () => {
      const { brokers, controller, clusterId } = await client.describeCluster();
      const rows = brokers.map(({ nodeId, host, port }) => [nodeId, host, port]);
      return { cluster_id: clusterId, controller, brokers: rows };
    },
    ...topicVerbs(client),
    ...groupVerbs(client),
  };
}

function topicVerbs(client) {
  const type = ConfigResourceTypes.TOPIC;
  return {
    "create-topic": async (topic, numPartitions, settings) => {
      const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value }));
      const topics = [{ topic, numPartitions, replicationFactor: 1, configEntries }];
      // This is how KafkaJS tells TOPIC_ALREADY_EXISTS.
      if (!(await client.createTopics({ topics }))) throw new Error("the topic exists");
    },
    "list-topics": () => client.listTopics(),
    "describe-topic": async (topic) => {
      const { topics } = await client.fetchTopicMetadata({ topics: [topic] });
      return topics[0].partitions.length;
    },
    "describe-configs": async (name) => {
      const { resources } = await client.describeConfigs({ resources: [{ type, name }] });
      return Object.fromEntries(
        resources[0].configEntries.map((entry) => [entry.configName, entry.configValue]),
      );
    },
    "create-partitions": async (topic, count) => {
      await client.createPartitions({ topicPartitions: [{ topic, count }] });
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
      return { state: groups[0].state, members: groups[0].members.length };
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

await main({ produce, consume, admin });
