// Runs a client as a program that is told what to do by its arguments and lines of JSON.
// tests/interop/programs.py says what the lines mean.

import { createInterface } from "node:readline";

/** Print a value as one line. */
export function tell(value) {
  process.stdout.write(JSON.stringify(value) + "\n");
}

/** Run the program: produce(), consume() and admin() are the client's. */
export async function main({ produce, consume, admin }) {
  const [verb, bootstrap, ...rest] = process.argv.slice(2);
  if (verb === "produce") {
    const records = [];
    for await (const line of input()) records.push(JSON.parse(line));
    await produce(bootstrap, ...rest, records);
  } else if (verb === "consume") {
    const [topic, group, count] = rest;
    const ended = new Promise((resolve) => input().once("close", resolve));
    await consume(bootstrap, topic, group, Number(count), ended);
  } else if (verb === "admin") {
    await serve(await admin(bootstrap));
  } else {
    throw new Error(`not understood: ${verb}`);
  }
  // What a library leaves running must not keep the program alive, once all is told.
  process.stdout.write("", () => process.exit(0));
}

/** Begin to read lines; those that come before anybody listens are lost, so not before. */
function input() {
  return createInterface({ input: process.stdin });
}

async function serve(verbs) {
  for await (const line of input()) {
    const [verb, ...rest] = JSON.parse(line);
    tell(await reply(verbs[verb], rest));
  }
}

async function reply(answer, rest) {
  if (answer === undefined) return { unsupported: true };
  try {
    return { answer: (await answer(...rest)) ?? null };
  } catch (error) {
    return { error: sentence(error) };
  }
}

/** Return what an error says, and what the errors say of which it is made. */
function sentence(error) {
  const parts = error.errors ?? error.groups ?? [];
  return [String(error), ...parts.map((part) => String(part.error ?? part))].join("; ");
}

/** Return records as messages that the client takes. */
export function messagesToSend(records) {
  return records.map(({ key, value, headers, timestamp_ms }) => ({
    key,
    value,
    headers: headersToSend(headers),
    timestamp: String(timestamp_ms),
  }));
}

/** Return a message's headers as the client takes them: repeated names share an array. */
function headersToSend(pairs) {
  const headers = {};
  for (const [name, value] of pairs) (headers[name] ??= []).push(value);
  return headers;
}

/** Return a received message as a line. */
export function received(partition, message) {
  const headers = Object.entries(message.headers ?? {}).flatMap(([name, values]) =>
    [values].flat().map((value) => [name, value.toString()]),
  );
  return {
    partition,
    offset: Number(message.offset),
    key: message.key?.toString() ?? null,
    value: message.value?.toString() ?? null,
    headers,
    timestamp_ms: Number(message.timestamp),
  };
}

/** Tell batches of messages, each once its offsets are committed, until there were `count`. */
export class Taker {
  constructor(topic, count, commit) {
    this.topic = topic;
    this.left = count;
    this.commit = commit;
    this.done = new Promise((resolve) => (this.finish = resolve));
  }

  async take({ partition, messages }) {
    const taken = messages.slice(0, this.left);
    if (taken.length === 0) return;
    this.left -= taken.length;
    const offset = String(Number(taken.at(-1).offset) + 1);
    await this.commit([{ topic: this.topic, partition, offset }]);
    for (const message of taken) tell(received(partition, message));
    if (this.left === 0) this.finish();
  }
}
