//! rdkafka as a program: tests/interop/programs.py says what the lines mean.

mod admin;
mod consume;
mod produce;

use std::error::Error;
use std::io;

use serde::{Deserialize, Serialize};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A record as it is sent (without its place) or was received.
#[derive(Deserialize, Serialize)]
struct Record {
    #[serde(default)]
    partition: i32,
    #[serde(default)]
    offset: i64,
    key: Option<String>,
    value: Option<String>,
    headers: Vec<(String, String)>,
    timestamp_ms: i64,
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["produce", bootstrap, topic, codec] => {
            let records = io::stdin()
                .lines()
                .map(|line| Ok(serde_json::from_str(&line?)?))
                .collect::<Outcome<Vec<Record>>>()?;
            produce::run(bootstrap, topic, codec, &records)
        }
        ["consume", bootstrap, topic, group, count] => {
            consume::run(bootstrap, topic, group, count.parse()?)
        }
        ["admin", bootstrap] => admin::run(bootstrap),
        _ => Err(format!("not understood: {words:?}").into()),
    }
}
