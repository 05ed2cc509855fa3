// Asks the broker. Reading is free; what changes something shows the admin token.

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

async function answer(response) {
  const told = await response.json().catch(() => ({}));
  if (!response.ok) throw Object.assign(new Error(told.error ?? response.statusText), { status: response.status });
  return told;
}

export async function get(path, query = {}) {
  return answer(await fetch(address(path, query)));
}

export async function post(path, query = {}) {
  const headers = { Authorization: `Bearer ${token() ?? ""}` };
  return answer(await fetch(address(path, query), { method: "POST", headers }));
}
