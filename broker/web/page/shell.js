// The frame around the views: the connection's state, problems, messages, the token, the theme.

import { get, keepToken, send, token } from "./api.js";
import { h, fill } from "./dom.js";

const byId = (id) => document.getElementById(id);
const TOAST_MS = 7000;
const THEME = "odradek-theme";
let toastTimer = 0;

export function toast(text) {
  byId("toast").textContent = text;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (byId("toast").textContent = ""), TOAST_MS);
}

export function showProblems(problems) {
  fill(byId("problems"), ...problems.map((one) => h("p", {}, one)));
}

export function showLink(state) {
  byId("link").className = `link ${state}`;
  byId("link").textContent = { live: "live", lost: "no answer", quiet: "not live" }[state] ?? "connecting…";
}

/** Ask for the admin token, or for a user and a password; resolves to whether there is a token then. */
export async function askToken() {
  const dialog = byId("token-dialog"), input = byId("token-input");
  const user = byId("user-input"), password = byId("password-input");
  byId("token-trouble").textContent = "";
  input.value = password.value = "";
  get("/api/broker").then((broker) => {
    byId("token-place").textContent = broker.token_file
      ? `: the file ${broker.token_file}` : ", or it is the setting odradek.admin.token";
  }, () => {});
  for (;;) {
    dialog.returnValue = "";
    dialog.showModal();
    input.focus();
    await new Promise((closed) => dialog.addEventListener("close", closed, { once: true }));
    if (dialog.returnValue !== "ok") return false;
    try {
      keepToken(user.value && !input.value ? (await send("/api/login", { user: user.value, password: password.value })).token : input.value.trim());
      break;
    } catch (error) {
      byId("token-trouble").textContent = error.message;
    }
  }
  dispatchEvent(new Event("token"));
  showToken();
  return Boolean(token());
}

/** Return the name in the token of a login, null for the admin token. */
function userOf(text) {
  const [kind, name] = text.split(".");
  if (kind !== "login" || !name) return null;
  return new TextDecoder().decode(Uint8Array.from(atob(name.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0)));
}

export function showToken() {
  const shown = token(), user = shown && userOf(shown);
  byId("token").textContent = !shown ? "Unlock actions" : user ? `Log out ${user}` : "Lock actions";
}

export function startShell() {
  byId("token").addEventListener("click", () => {
    if (!token()) return askToken();
    keepToken(null);
    showToken();
  });
  // Enter in a field would press the first submit button, which cancels.
  byId("token-dialog").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault();
    byId("token-dialog").close("ok");
  });
  const kept = localStorage.getItem(THEME);
  if (kept) document.documentElement.dataset.theme = kept;
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem(THEME, root.dataset.theme);
  });
  showToken();
}
