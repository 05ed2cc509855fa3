// Asks the broker. What changes something shows the token; so does reading, where that takes one.

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
  const told = await response.json().catch(() => ({}));
  // Shown again and again a wrong token counts as guessing.
  if (response.status === 401 && isRead) keepToken(null);
  if (!response.ok) throw Object.assign(new Error(told.error ?? response.statusText), { status: response.status });
  return told;
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

/**
 * Listen to events until the broker has no more of them; `opened` is called once it answers.
 * EventSource would do, but shows no token.
 */
export async function listen(path, opened, told) {
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
      if (name) told(name, JSON.parse(data));
    }
  }
}
