// Access: the entries of the authorizer, the users of SCRAM, the quotas; each with its actions.

import { button, buttons, confirmed, fillIn } from "./actions.js";
import { get } from "./api.js";
import { h, row, table } from "./dom.js";
import { whole } from "./format.js";

const OPERATIONS = ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", "CLUSTER_ACTION", "IDEMPOTENT_WRITE", "ALL"];
const RESOURCES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"];
const ENTITIES = [["user", "User"], ["client-id", "Client id"], ["ip", "Address"]];

const same = (names) => names.map((one) => [one, one]);

/** Make a card with a table that `ask` fills; a broker that has no such thing says why. */
function card(title, list, add, ask) {
  const trouble = h("p", { class: "none" });
  const element = h("section", { class: "card" }, h("div", { class: "bar-row" }, h("h2", {}, title), add), list.element, trouble);
  async function refresh() {
    try {
      await ask();
      trouble.textContent = "";
      list.element.hidden = false;
    } catch (error) {
      trouble.textContent = error.message;
      list.element.hidden = true;
    }
  }
  return { element, refresh };
}

function acls() {
  const list = table("Access control lists", [["Principal"], ["May"], ["Resource"], ["From", "optional"], ["Action"]], "There is no entry.");
  const textOf = (one) => `${one.resource.toLowerCase().replaceAll("_", " ")} ${one.pattern === "PREFIXED" ? `${one.name}…` : one.name}`;
  const add = button("Add entry", () => fillIn("Add an entry", [
    { name: "principal", label: "Principal", required: true, value: "User:" },
    { name: "permission", label: "Permission", kind: "choice", options: [["ALLOW", "may"], ["DENY", "may not"]], value: "ALLOW" },
    { name: "operation", label: "Operation", kind: "choice", options: same(OPERATIONS), value: "READ" },
    { name: "resource", label: "Resource", kind: "choice", options: same(RESOURCES), value: "TOPIC" },
    { name: "name", label: "Name", hint: "* stands for all names. The cluster needs none." },
    { name: "pattern", label: "The name is", kind: "choice", options: [["LITERAL", "the whole name"], ["PREFIXED", "the begin of names"]], value: "LITERAL" },
    { name: "host", label: "From the address", value: "*" },
  ], "/api/acls/create", (values) => values, { done: () => made.refresh() }));
  const made = card("Access control lists", list, add, async () => {
    const { acls: all } = await get("/api/acls");
    list.show(all, (one) => JSON.stringify(one), (item) => {
      const remove = buttons(button("Delete", () => confirmed("/api/acls/delete", item, { isDangerous: true, done: made.refresh }), { "aria-label": `Delete the entry of ${item.principal} for ${textOf(item)}` }));
      return row((one) => [
        ["wrap", one.principal], h("span", {}, one.permission === "DENY" ? h("span", { class: "tag bad" }, "not") : null, ` ${one.operation}`),
        ["wrap", textOf(one)], ["optional", one.host === "*" ? "anywhere" : one.host], remove,
      ]);
    });
  });
  return made;
}

function users() {
  const list = table("Users of SCRAM", [["User"], ["Mechanisms"], ["Action"]], "There is no user of SCRAM.");
  const add = button("Add user", () => fillIn("Create a user, or give one another password", [
    { name: "user", label: "User", required: true },
    { name: "password", label: "Password", kind: "password", required: true },
    { name: "mechanism", label: "Mechanisms", kind: "choice", options: [["", "both"], ...same(MECHANISMS)], value: "" },
  ], "/api/users/create", (values) => ({
    user: values.user, password: values.password, mechanisms: values.mechanism ? [values.mechanism] : [],
  }), { done: () => made.refresh() }));
  const made = card("Users", list, add, async () => {
    const { users: all } = await get("/api/users");
    list.show(all, (one) => one.user, (item) => {
      const remove = buttons(button("Delete", () => confirmed("/api/users/delete", { user: item.user }, { isDangerous: true, done: made.refresh }), { "aria-label": `Delete user ${item.user}` }));
      return row((one) => [["wrap", one.user], one.credentials.map((it) => `${it.mechanism} (${whole(it.iterations)} iterations)`).join(", "), remove]);
    });
  });
  return made;
}

function quotas() {
  const list = table("Quotas", [["For"], ["Quota"], ["Action"]], "There is no quota.");
  const memberOf = (kind) => kind.replace("-", "_");
  const textOf = (entity) => Object.entries(entity).map(([kind, name]) => `${kind} ${name || "(default)"}`).join(", ");
  const add = button("Set quota", () => fillIn("Set a quota", [
    { name: "kind", label: "For", kind: "choice", options: ENTITIES, value: "user" },
    { name: "entity", label: "Name", hint: "Empty: the default, for all without a quota of their own." },
    { name: "key", label: "Quota", kind: "choice", options: same(QUOTAS), value: QUOTAS[0] },
    { name: "value", label: "Value", required: true, hint: "Bytes a second, per cent of a thread, changes or connections a second." },
  ], "/api/quotas/alter", (values) => ({ [memberOf(values.kind)]: values.entity.trim(), set: { [values.key]: values.value } }), { done: () => made.refresh() }));
  const made = card("Quotas", list, add, async () => {
    const { quotas: all } = await get("/api/quotas");
    const rows = all.flatMap(({ entity, values }) => Object.entries(values).map(([key, value]) => ({ entity, key, value })));
    list.show(rows, (one) => JSON.stringify([one.entity, one.key]), (item) => {
      const named = Object.fromEntries(Object.entries(item.entity).map(([kind, name]) => [memberOf(kind), name]));
      const remove = buttons(button("Delete", () => confirmed("/api/quotas/alter", { ...named, delete: [item.key] }, { done: made.refresh }), { "aria-label": `Delete ${item.key} of ${textOf(item.entity)}` }));
      return row((one) => [["wrap", textOf(one.entity)], h("span", {}, h("code", {}, one.key), ` ${whole(one.value)}`), remove]);
    });
  });
  return made;
}

export async function access() {
  const cards = [acls(), users(), quotas()];
  const refresh = () => Promise.all(cards.map((one) => one.refresh()));
  await refresh();
  return { elements: [h("div", { class: "head" }, h("h1", {}, "Access")), ...cards.map((one) => one.element)], refresh };
}
