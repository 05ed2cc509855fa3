// The frame around the views: the connection's state, problems, messages, the token, the theme.

import { get, keepToken, token } from "./api.js";
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
  byId("link").textContent = { live: "live", lost: "no answer" }[state] ?? "connecting…";
}

/** Ask for the admin token; resolves to whether there is one then. */
export async function askToken() {
  const dialog = byId("token-dialog"), input = byId("token-input");
  input.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  input.focus();
  get("/api/broker").then((broker) => {
    byId("token-place").textContent = broker.token_file
      ? `: the file ${broker.token_file}` : ", or it is the setting odradek.admin.token";
  }, () => {});
  await new Promise((closed) => dialog.addEventListener("close", closed, { once: true }));
  if (dialog.returnValue === "ok") {
    keepToken(input.value.trim());
    dispatchEvent(new Event("token"));
  }
  showToken();
  return dialog.returnValue === "ok" && Boolean(token());
}

export function showToken() {
  byId("token").textContent = token() ? "Lock actions" : "Unlock actions";
}

export function startShell() {
  byId("token").addEventListener("click", () => {
    if (!token()) return askToken();
    keepToken(null);
    showToken();
  });
  // Enter in the field would press the first submit button, which cancels.
  byId("token-input").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
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
