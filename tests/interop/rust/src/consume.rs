//! Reads as a member of a group.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::json;

use crate::{Outcome, Record};

const POLL: Duration = Duration::from_millis(100);

/// Tells what the member has after each rebalance.
struct Telling;

impl ClientContext for Telling {}

impl ConsumerContext for Telling {
    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, _: &Rebalance<'_>) {
        // A consumer that is being closed has none, and nobody to tell.
        let Ok(assignment) = consumer.assignment() else { return };
        let mut partitions: Vec<i32> =
            assignment.elements().iter().map(|element| element.partition()).collect();
        partitions.sort_unstable();
        println!("{}", json!({ "assigned": partitions }));
    }
}

/// Commits, then tells, up to a count of records, until the input ends.
pub fn run(bootstrap: &str, topic: &str, group: &str, count: usize) -> Outcome<()> {
    let consumer: BaseConsumer<Telling> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create_with_context(Telling)?;
    consumer.subscribe(&[topic])?;
    let ended = until_input_ends();
    let mut left = count;
    while left > 0 && !ended.load(Ordering::Relaxed) {
        let taken = poll(&consumer, left)?;
        if !taken.is_empty() {
            let mut next = TopicPartitionList::new();
            for message in &taken {
                let offset = Offset::Offset(message.offset() + 1);
                // A later message of the partition has the last word.
                match next.find_partition(topic, message.partition()) {
                    Some(mut known) => known.set_offset(offset)?,
                    None => next.add_partition_offset(topic, message.partition(), offset)?,
                }
            }
            consumer.commit(&next, CommitMode::Sync)?;
        }
        for message in &taken {
            println!("{}", serde_json::to_string(&received(message)?)?);
        }
        left -= taken.len();
    }
    Ok(())
}

/// Returns messages that are there, waiting for the first only.
fn poll(consumer: &BaseConsumer<Telling>, most: usize) -> Outcome<Vec<BorrowedMessage<'_>>> {
    let mut taken = Vec::new();
    let mut wait = POLL;
    while taken.len() < most {
        match consumer.poll(wait) {
            Some(Ok(message)) => taken.push(message),
            // librdkafka meets a broker again that restarts.
            Some(Err(KafkaError::MessageConsumption(
                RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::AllBrokersDown,
            ))) => (),
            Some(Err(error)) => return Err(error.into()),
            None => break,
        }
        wait = Duration::ZERO;
    }
    Ok(taken)
}

fn until_input_ends() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ended);
    std::thread::spawn(move || {
        io::stdin().lines().for_each(drop);
        told.store(true, Ordering::Relaxed);
    });
    ended
}

fn received(message: &BorrowedMessage<'_>) -> Outcome<Record> {
    let mut headers = Vec::new();
    for header in message.headers().iter().flat_map(|headers| headers.iter()) {
        let value = std::str::from_utf8(header.value.unwrap_or_default())?;
        headers.push((header.key.to_owned(), value.to_owned()));
    }
    Ok(Record {
        partition: message.partition(),
        offset: message.offset(),
        key: text(message.key())?,
        value: text(message.payload())?,
        headers,
        timestamp_ms: message.timestamp().to_millis().unwrap_or(-1),
    })
}

fn text(bytes: Option<&[u8]>) -> Outcome<Option<String>> {
    Ok(bytes.map(|bytes| std::str::from_utf8(bytes).map(str::to_owned)).transpose()?)
}
