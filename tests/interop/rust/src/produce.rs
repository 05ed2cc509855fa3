//! Sends records in order, idempotently.

use std::sync::Mutex;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};

use crate::{Outcome, Record};

const TIMEOUT: Duration = Duration::from_secs(60);

/// Keeps why the last record failed that did.
#[derive(Default)]
struct Deliveries {
    failed: Mutex<Option<KafkaError>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            *self.failed.lock().unwrap() = Some(error.clone());
        }
    }
}

/// Returns once all are acknowledged.
pub fn run(bootstrap: &str, topic: &str, codec: &str, records: &[Record]) -> Outcome<()> {
    let producer: ThreadedProducer<Deliveries> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("compression.type", codec)
        .set("enable.idempotence", "true")
        .create_with_context(Deliveries::default())?;
    for record in records {
        let headers = record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value) })
        });
        let mut sent = BaseRecord::<str, str>::to(topic)
            .timestamp(record.timestamp_ms)
            .headers(headers);
        sent.key = record.key.as_deref();
        sent.payload = record.value.as_deref();
        while let Err((error, unsent)) = producer.send(sent) {
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(10));
            sent = unsent;
        }
    }
    producer.flush(TIMEOUT)?;
    let failed = producer.context().failed.lock().unwrap().take();
    failed.map_or(Ok(()), |error| Err(error.into()))
}
