// Sends requests to the broker, with the token if there is one: changes need it, and so may reading.

const TOKEN = "odradek-admin-token";

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function keepToken(text) {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
}

function address(path, query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") parameters.set(name, value);
  }
  const text = parameters.toString();
  return text ? `${path}?${text}` : path;
}

async function answer(response, isRead = true) {
  const body = await response.json().catch(() => ({}));
  // A wrong token that is sent again and again counts as guessing.
  if (response.status === 401 && isRead) keepToken(null);
  if (!response.ok) throw Object.assign(new Error(body.error ?? response.statusText), { status: response.status });
  return body;
}

function shown() {
  return token() ? { Authorization: `Bearer ${token()}` } : {};
}

export async function get(path, query = {}) {
  return answer(await fetch(address(path, query), { headers: shown() }));
}

export async function post(path, query = {}) {
  return answer(await fetch(address(path, query), { method: "POST", headers: shown() }), false);
}

/** Send a JSON object for an action. */
export async function send(path, body) {
  const headers = { ...shown(), "Content-Type": "application/json" };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }), false);
}

/**
 * Listen to events until the broker ends the stream: `opened` is called once it answers, then
 * `received` with each event.
 * EventSource would be simpler, but cannot send a token.
 */
export async function listen(path, opened, received) {
  const response = await fetch(path, { headers: shown() });
  if (!response.ok) await answer(response);
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(event) ?? [];
      if (name) received(name, JSON.parse(data));
    }
  }
}
