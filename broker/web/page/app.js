// Finds the view for the address, and passes the broker's events to it.

import { listen, token } from "./api.js";
import { fill, h } from "./dom.js";
import { askToken, showLink, showProblems, showToken, startShell } from "./shell.js";
import { access } from "./access.js";
import { cleaner } from "./cleaner.js";
import { cluster } from "./cluster.js";
import { group, groups } from "./groups.js";
import { overview } from "./overview.js";
import { topic, topics } from "./topics.js";
import { transactions } from "./transactions.js";
import { unknown } from "./unknown.js";

const VIEWS = { "": overview, topics, topic, cleaner, groups, group, transactions, access, cluster };
const RETRY_MS = 3000;
const TICK_MS = 1000;
const PAGES = { "": "overview", topic: "topics", group: "groups" };
const main = document.getElementById("main");
let view = null;
let turn = 0;
// Whether the view of the address could not be shown.
let hasFailed = false;

/** Show the view of the address; `#/topic/prices/records` is topic("prices", "records"). */
async function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const make = Object.hasOwn(VIEWS, name) ? VIEWS[name] : unknown;
  const mine = ++turn;
  view?.close?.();
  view = null;
  hasFailed = false;
  for (const link of document.querySelectorAll("nav a[data-page]")) {
    const isHere = link.dataset.page === (PAGES[name] ?? name);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  try {
    const made = await make(...rest);
    if (mine !== turn) return made.close?.();
    view = made;
    main.replaceChildren(...made.elements);
  } catch (error) {
    if (mine !== turn) return;
    hasFailed = true;
    main.replaceChildren(...failure(error));
  }
  const title = main.querySelector("h1");
  document.title = title ? `${title.textContent} – Odradek` : "Odradek";
  if (title && document.activeElement !== document.body) {
    title.tabIndex = -1;
    title.focus({ preventScroll: true });
  }
}

/** Listen to events, and again when the connection is lost: then everything may have changed. */
async function follow() {
  for (;;) {
    const known = token();
    let isQuiet = false;
    try {
      await listen("/api/events", () => {
        showLink("live");
        if (hasFailed) route();
        else view?.refresh?.();
      }, (name, data) => {
        if (name === "cleaner") view?.refresh?.();
        if (name !== "tick") return;
        showProblems(data.problems);
        document.querySelector('nav a[data-page="cluster"]').hidden = !data.has_catalog;
        if (!document.hidden) view?.tick?.(data);
      });
    } catch (error) {
      isQuiet = error.status === 403;
    }
    showLink(isQuiet ? "quiet" : "lost");
    showToken();
    // The token may have come while the broker refused the one before.
    if (token() === known || token() === null) await (isQuiet ? tickQuietly() : anotherToken(RETRY_MS));
  }
}

/** Let the view ask by itself until there is another token: without the right to describe the cluster there are no events. */
async function tickQuietly() {
  const ticking = setInterval(() => !document.hidden && view?.tick?.(null), TICK_MS);
  await anotherToken();
  clearInterval(ticking);
}

/** Resolve once a token was entered, or after a time. */
function anotherToken(timeoutMs) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      removeEventListener("token", end);
      resolve();
    };
    const timer = timeoutMs && setTimeout(end, timeoutMs);
    addEventListener("token", end);
  });
}

/** Show why a view cannot be shown; where it needs a token, ask for it. */
function failure(error) {
  const place = h("div");
  fill(place, h("h1", {}, "This cannot be shown"), h("p", {}, error.message));
  if (error.status === 401) {
    showToken();
    // With a token the view is made again.
    place.append(h("p", {}, h("button", { type: "button", class: "primary", onclick: () => askToken() }, "Enter a token")));
  }
  return place.childNodes;
}

startShell();
addEventListener("hashchange", route);
addEventListener("token", () => view === null && route());
document.addEventListener("visibilitychange", () => !document.hidden && view?.refresh?.());
route().then(follow);
