// Finds the view for the address, and tells it what happens in the broker.

import { fill, h } from "./dom.js";
import { showLink, showProblems, startShell } from "./shell.js";
import { cleaner } from "./cleaner.js";
import { group, groups } from "./groups.js";
import { overview } from "./overview.js";
import { topic, topics } from "./topics.js";

const VIEWS = { "": overview, topics, topic, cleaner, groups, group };
const PAGES = { "": "overview", topic: "topics", group: "groups" };
const main = document.getElementById("main");
let view = null;
let turn = 0;

/** Show the view of the address; `#/topic/prices/records` is topic("prices", "records"). */
async function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const make = VIEWS[name] ?? overview;
  const mine = ++turn;
  view?.close?.();
  view = null;
  for (const link of document.querySelectorAll("nav a[data-page]")) {
    const isHere = link.dataset.page === (PAGES[name] ?? name);
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const place = h("div", { style: null });
  try {
    const made = await make(...rest);
    if (mine !== turn) return made.close?.();
    view = made;
    main.replaceChildren(...made.elements);
  } catch (error) {
    if (mine !== turn) return;
    fill(place, h("h1", {}, "This cannot be shown"), h("p", {}, error.message));
    main.replaceChildren(...place.childNodes);
  }
  const title = main.querySelector("h1");
  document.title = title ? `${title.textContent} – Odradek` : "Odradek";
  if (title && document.activeElement !== document.body) {
    title.tabIndex = -1;
    title.focus({ preventScroll: true });
  }
}

/** Listen; a browser connects again by itself, and then all may have changed. */
function listen() {
  const events = new EventSource("/api/events");
  events.addEventListener("open", () => {
    showLink("live");
    view?.refresh?.();
  });
  events.addEventListener("error", () => {
    showLink("lost");
    // After some answers (503: too many listen) a browser gives up.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 5000);
  });
  events.addEventListener("tick", (event) => {
    const now = JSON.parse(event.data);
    showProblems(now.problems);
    if (!document.hidden) view?.tick?.(now);
  });
  events.addEventListener("cleaner", () => view?.refresh?.());
}

startShell();
addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => !document.hidden && view?.refresh?.());
route().then(listen);
