// The view of an address that names no view.

import { h } from "./dom.js";

export async function unknown() {
  return {
    elements: [
      h("h1", {}, "There is no such page"),
      h("p", {}, "The address ", h("code", {}, location.hash), " names no view of this broker. ", h("a", { href: "#/" }, "Go to the overview"), "."),
    ],
  };
}
