// Creates and reuses elements: the views change every second, and must not lose the focus.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes by name, `on…` as listeners, children as nodes or text. */
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  set(made, attributes);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Make an element of a drawing. */
export function s(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  set(made, attributes);
  made.append(...children);
  return made;
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "width%") element.style.width = `${value}%`;
    else if (name === "left%") element.style.left = `${value}%`;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

/** Replace the children of an element, unless the new ones look the same. */
export function fill(element, ...children) {
  const fresh = h("div", {}, ...children);
  if (element.innerHTML !== fresh.innerHTML) element.replaceChildren(...fresh.childNodes);
}

/**
 * Keep one element for each item, in the items' order: elements of items that stay are reused, so
 * that a button in them keeps the focus. `make` returns {element, update}.
 */
export function keep(container, items, keyOf, make) {
  const kept = (container.kept ??= new Map());
  const wanted = new Set();
  let at = container.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    wanted.add(key);
    let entry = kept.get(key);
    if (!entry) kept.set(key, (entry = make(item)));
    entry.update(item);
    if (entry.element === at) at = at.nextElementSibling;
    else container.insertBefore(entry.element, at);
  }
  for (const [key, entry] of kept) {
    if (wanted.has(key)) continue;
    entry.element.remove();
    kept.delete(key);
  }
}

/** Make a table with a caption; returns {element, show}. */
export function table(caption, columns, none) {
  const body = h("tbody");
  const empty = h("p", { class: "none" }, none);
  const head = columns.map(([text, kind]) => h("th", { scope: "col", class: kind }, text));
  const made = h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, head)), body);
  const element = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, made, empty);
  const show = (items, keyOf, make) => {
    keep(body, items, keyOf, make);
    empty.hidden = items.length > 0;
    made.hidden = items.length === 0;
  };
  return { element, show };
}

/** Make a row whose cells are filled again at each update: [class, content] or content. */
export function row(cellsOf, classOf = () => "") {
  const element = h("tr");
  return {
    element,
    update(item) {
      element.className = classOf(item);
      const cells = cellsOf(item);
      while (element.children.length < cells.length) element.append(h("td"));
      cells.forEach((cell, at) => {
        const [kind, content] = Array.isArray(cell) ? cell : ["", cell];
        const td = element.children[at];
        td.className = kind;
        if (content instanceof Node && td.firstChild === content) return;
        if (content instanceof Node && content.isKept) td.replaceChildren(content);
        else fill(td, content);
      });
    },
  };
}
