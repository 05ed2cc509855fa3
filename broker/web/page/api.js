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

/** Send a request with the token, and resolve to its response; throw an error that says why not. */
async function ask(path, options = {}) {
  const sent = token();
  const headers = { ...(sent && { Authorization: `Bearer ${sent}` }), ...options.headers };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  // A wrong token that is sent again and again counts as guessing. A token that was entered
  // meanwhile is another one.
  if (response.status === 401 && !options.method && token() === sent) keepToken(null);
  throw Object.assign(new Error((await body(response)).error ?? response.statusText), { status: response.status });
}

async function body(response) {
  return response.json().catch(() => ({}));
}

export async function get(path, query = {}) {
  return body(await ask(address(path, query)));
}

export async function post(path, query = {}) {
  return body(await ask(address(path, query), { method: "POST" }));
}

/** Send a JSON object for an action. */
export async function send(path, object) {
  const headers = { "Content-Type": "application/json" };
  return body(await ask(path, { method: "POST", headers, body: JSON.stringify(object) }));
}

/**
 * Listen to events until the broker ends the stream: `opened` is called once it answers, then
 * `received` with each event.
 * EventSource would be simpler, but cannot send a token.
 */
export async function listen(path, opened, received) {
  const response = await ask(path);
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
