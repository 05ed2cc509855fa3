// The settings of a topic: values, sources and meanings; and their changes.

import { button, buttons, confirmed, fillIn } from "./actions.js";
import { get } from "./api.js";
import { h, row, table } from "./dom.js";

export async function settings(topic) {
  const search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter settings", oninput: () => draw() });
  const own = h("input", { type: "checkbox", onchange: () => draw() });
  const list = table(`Settings of ${topic}`,
    [["Setting"], ["Value"], ["From", "optional"], ["Otherwise", "optional"], ["Action"]], "No setting matches.");
  let all = [];

  function draw() {
    const text = search.value.trim().toLowerCase();
    const shown = all.filter((one) => (one.name.includes(text) || one.documentation.toLowerCase().includes(text)) && (!own.checked || one.is_own));
    list.show(shown, (one) => one.name, (item) => {
      const change = button("Change", () => alter(item.name), { "aria-label": `Change ${item.name}` });
      const remove = button("Remove", () => reset(item.name), { "aria-label": `Remove ${item.name}` });
      const actions = buttons(change, remove);
      return row((one) => {
        remove.hidden = !one.is_own;
        return [
          ["wrap", h("div", {}, h("code", {}, one.name), h("div", { class: "quiet small" }, one.documentation))],
          ["wrap mono", one.is_secret ? "(hidden)" : one.value || "(empty)"],
          ["optional", h("span", { class: one.is_own ? "tag now" : "quiet" }, one.from)],
          ["optional wrap mono", one.is_own ? one.otherwise ?? "–" : ""], actions,
        ];
      });
    });
  }

  const byName = (name) => all.find((one) => one.name === name);

  async function alter(name) {
    const one = byName(name);
    await fillIn(`Change ${name}`, [{ name: "value", label: "Value", value: one.value ?? "" }], "/api/topics/alter",
      (values) => ({ topic, set: { [name]: values.value } }), { intro: one.documentation });
    await refresh();
  }

  async function reset(name) {
    await confirmed("/api/topics/alter", { topic, delete: [name] });
    await refresh();
  }

  async function refresh() {
    all = (await get("/api/configs", { topic })).settings;
    draw();
  }

  await refresh();
  return {
    elements: [h("section", { class: "card" },
      h("div", { class: "controls" }, search, h("label", {}, own, " only those set for the topic")), list.element)],
    refresh,
  };
}
