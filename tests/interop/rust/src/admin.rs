//! Answers an administrator's requests.

use std::io;
use std::time::Duration;

use futures::executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, ResourceSpecifier};
use rdkafka::admin::TopicReplication::Fixed;
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{json, Map, Value};

use crate::Outcome;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Answers until the input ends.
pub fn run(bootstrap: &str) -> Outcome<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    let admin = Admin { client: config.create()?, config };
    for line in io::stdin().lines() {
        let request: Vec<Value> = serde_json::from_str(&line?)?;
        let reply = match admin.answer(&request) {
            Ok(Some(answer)) => json!({ "answer": answer }),
            Ok(None) => json!({ "unsupported": true }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        println!("{reply}");
    }
    Ok(())
}

struct Admin {
    client: AdminClient<DefaultClientContext>,
    config: ClientConfig,
}

impl Admin {
    /// Returns the answer, None where rdkafka has no call.
    fn answer(&self, request: &[Value]) -> Outcome<Option<Value>> {
        let name = request.get(1).and_then(Value::as_str).unwrap_or_default();
        let number = |at: usize| request[at].as_i64().ok_or("a number is missing");
        let options = AdminOptions::new();
        let client = &self.client;
        let done = match request[0].as_str().unwrap_or_default() {
            "describe-cluster" => return self.describe_cluster().map(Some),
            "list-topics" => return self.list_topics().map(Some),
            "describe-topic" => return self.describe_topic(name).map(Some),
            "describe-configs" => return self.describe_configs(name).map(Some),
            "list-groups" => return self.list_groups().map(Some),
            "describe-group" => return self.describe_group(name).map(Some),
            "group-offsets" => {
                let topic = request[2].as_str().ok_or("a topic is missing")?;
                return self.group_offsets(name, topic).map(Some);
            }
            "delete-records" => {
                let (partition, offset) = (i32::try_from(number(2)?)?, Offset::Offset(number(3)?));
                let mut before = TopicPartitionList::new();
                before.add_partition_offset(name, partition, offset)?;
                block_on(client.delete_records(&before, &options))?
                    .elements()
                    .iter()
                    .try_for_each(|element| element.error())?;
                return Ok(Some(Value::Null));
            }
            "create-topic" => {
                let topic = NewTopic::new(name, i32::try_from(number(2)?)?, Fixed(1));
                let settings = request[3].as_object().ok_or("settings are missing")?;
                let topic = settings.iter().fold(topic, |topic, (name, value)| {
                    topic.set(name, value.as_str().unwrap_or_default())
                });
                block_on(client.create_topics([&topic], &options))?
            }
            "create-partitions" => {
                let total = NewPartitions::new(name, usize::try_from(number(2)?)?);
                block_on(client.create_partitions([&total], &options))?
            }
            "delete-topic" => block_on(client.delete_topics(&[name], &options))?,
            "delete-group" => block_on(client.delete_groups(&[name], &options))?,
            _ => return Ok(None),
        };
        check(done)?;
        Ok(Some(Value::Null))
    }

    fn describe_cluster(&self) -> Outcome<Value> {
        let metadata = self.client.inner().fetch_metadata(None, TIMEOUT)?;
        let brokers: Vec<Value> = metadata
            .brokers()
            .iter()
            .map(|broker| json!([broker.id(), broker.host(), broker.port()]))
            .collect();
        let cluster_id = self.client.inner().fetch_cluster_id(TIMEOUT);
        Ok(json!({ "cluster_id": cluster_id, "brokers": brokers }))
    }

    fn list_topics(&self) -> Outcome<Value> {
        let metadata = self.client.inner().fetch_metadata(None, TIMEOUT)?;
        Ok(metadata.topics().iter().map(|topic| topic.name()).collect())
    }

    fn describe_topic(&self, topic: &str) -> Outcome<Value> {
        let metadata = self.client.inner().fetch_metadata(Some(topic), TIMEOUT)?;
        Ok(metadata.topics()[0].partitions().len().into())
    }

    fn describe_configs(&self, topic: &str) -> Outcome<Value> {
        let resource = ResourceSpecifier::Topic(topic);
        let described =
            block_on(self.client.describe_configs([&resource], &AdminOptions::new()))?;
        let mut values = Map::new();
        for resource in described {
            for entry in resource?.entries {
                values.insert(entry.name, entry.value.into());
            }
        }
        Ok(values.into())
    }

    fn list_groups(&self) -> Outcome<Value> {
        let listed = self.client.inner().fetch_group_list(None, TIMEOUT)?;
        Ok(listed.groups().iter().map(|group| group.name()).collect())
    }

    fn describe_group(&self, group: &str) -> Outcome<Value> {
        let listed = self.client.inner().fetch_group_list(Some(group), TIMEOUT)?;
        let found = &listed.groups()[0];
        Ok(json!({ "state": found.state(), "members": found.members().len() }))
    }

    /// Asks as a consumer of the group that subscribes to nothing.
    fn group_offsets(&self, group: &str, topic: &str) -> Outcome<Value> {
        let consumer: BaseConsumer = self.config.clone().set("group.id", group).create()?;
        let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT)?;
        let mut asked = TopicPartitionList::new();
        for partition in metadata.topics()[0].partitions() {
            asked.add_partition(topic, partition.id());
        }
        let committed = consumer.committed_offsets(asked, TIMEOUT)?;
        Ok(committed
            .elements()
            .iter()
            .filter_map(|element| Some(json!([element.partition(), element.offset().to_raw()?])))
            .filter(|pair| pair[1].as_i64() >= Some(0))
            .collect())
    }
}

fn check(done: Vec<Result<String, (String, RDKafkaErrorCode)>>) -> Outcome<()> {
    for one in done {
        one.map_err(|(name, code)| format!("{name}: {code}"))?;
    }
    Ok(())
}
