// Draws lines over time, and bars of runs.

import { h, s, fill } from "./dom.js";

const WIDTH = 520, HEIGHT = 150, LEFT = 58, BOTTOM = 20, TOP = 8;

function nice(value) {
  if (!(value > 0)) return 1;
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * step).find((top) => top >= value);
}

function frame(top, format, firstMs, lastMs) {
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const y = TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
    parts.push(s("line", { class: "grid-line", x1: LEFT, x2: WIDTH, y1: y, y2: y }));
    const text = s("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" });
    text.textContent = format(top * share);
    parts.push(text);
  }
  const clock = (ms) => new Date(ms).toLocaleTimeString("sv");
  for (const [x, ms, anchor] of [[LEFT, firstMs, "start"], [WIDTH, lastMs, "end"]]) {
    const text = s("text", { x, y: HEIGHT - 4, "text-anchor": anchor });
    text.textContent = clock(ms);
    parts.push(text);
  }
  return parts;
}

/** Make a card with lines; update(times, {name: values}, spanMs) draws them again. */
export function lines(title, names, format) {
  const picture = h("div");
  const legend = h("p", { class: "key" });
  const element = h("section", { class: "card" }, h("h2", {}, title), picture, legend);
  return {
    element,
    update(times, columns, spanMs) {
      const lastMs = times.at(-1) ?? Date.now();
      const firstMs = lastMs - spanMs;
      const known = names.flatMap((name) => (columns[name.column] ?? []).filter((v) => v !== null));
      const top = nice(Math.max(...known, 0));
      const x = (ms) => LEFT + ((ms - firstMs) / spanMs) * (WIDTH - LEFT);
      const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
      const paths = names.map((name, at) => {
        let line = "", isOn = false;
        (columns[name.column] ?? []).forEach((value, index) => {
          if (times[index] < firstMs) return;
          if (value === null) { isOn = false; return; }
          line += `${isOn ? "L" : "M"}${x(times[index]).toFixed(1)} ${y(value).toFixed(1)}`;
          // A lone point is a dot: lines have round ends.
          if (!isOn) line += "h0.01";
          isOn = true;
        });
        return s("path", { class: `s${at}`, d: line, "stroke-linecap": "round" });
      });
      const said = names.map((name) => `${name.text} ${format(columns[name.column]?.at(-1) ?? null)}`);
      const drawing = s(
        "svg",
        { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
          "aria-label": `${title}, now ${said.join(", ")}` },
        ...frame(top, format, firstMs, lastMs), ...paths);
      picture.replaceChildren(drawing);
      fill(legend, ...names.map((name, at) => h("span", {}, h("i", { class: `swatch s${at}` }), said[at])));
    },
  };
}

/** Make a card with a group of bars for each run, the latest at the right. */
export function runBars(title, names, format) {
  const picture = h("div");
  const legend = h("p", { class: "key" });
  const element = h("section", { class: "card" }, h("h2", {}, title), picture, legend);
  return {
    element,
    update(runs) {
      const shown = runs.slice(-40);
      const top = nice(Math.max(...shown.flatMap((run) => names.map((name) => run[name.column])), 0));
      const slot = (WIDTH - LEFT) / Math.max(shown.length, 12);
      const thick = Math.min((slot * 0.8) / names.length, 14);
      const bars = shown.flatMap((run, at) => names.map((name, series) => {
        const tall = (run[name.column] / top) * (HEIGHT - TOP - BOTTOM);
        const bar = s("rect", {
          class: `s${series} f${series}`, x: WIDTH - (shown.length - at) * slot + series * thick,
          y: HEIGHT - BOTTOM - tall, width: Math.max(thick - 1, 1), height: Math.max(tall, 0) });
        const hint = s("title");
        hint.textContent = `${run.name}: ${name.text} ${format(run[name.column])}`;
        bar.append(hint);
        return bar;
      }));
      const firstMs = shown[0]?.at_ms ?? Date.now(), lastMs = shown.at(-1)?.at_ms ?? Date.now();
      picture.replaceChildren(s(
        "svg",
        { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img",
          "aria-label": `${title}: ${shown.length} runs` },
        ...frame(top, format, firstMs, lastMs), ...bars));
      fill(legend, ...names.map((name, at) => h("span", {}, h("i", { class: `swatch s${at}` }), name.text)));
    },
  };
}
