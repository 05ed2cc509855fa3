// Finds the view for the address, and passes the broker's events to it.

import { listen } from "./api.js";
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

/** Show the view of the address; `#/topic/prices/records` is topic("prices", "records"). */
async function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const make = Object.hasOwn(VIEWS, name) ? VIEWS[name] : unknown;
  const mine = ++turn;
  view?.close?.();
  view = null;
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
  try {
    await listen("/api/events", () => {
      showLink("live");
      view?.refresh?.();
    }, (name, data) => {
      if (name === "cleaner") view?.refresh?.();
      if (name !== "tick") return;
      showProblems(data.problems);
      document.querySelector('nav a[data-page="cluster"]').hidden = !data.has_catalog;
      if (!document.hidden) view?.tick?.(data);
    });
  } catch (error) {
    // Without the right to describe the cluster there are no events: the views ask by themselves.
    if (error.status === 403) {
      showLink("quiet");
      const ticking = setInterval(() => !document.hidden && view?.tick?.(null), TICK_MS);
      addEventListener("token", () => {
        clearInterval(ticking);
        follow();
      }, { once: true });
      return;
    }
  }
  showLink("lost");
  const again = setTimeout(() => dispatchEvent(new Event("token")), RETRY_MS);
  addEventListener("token", () => {
    clearTimeout(again);
    follow();
  }, { once: true });
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
