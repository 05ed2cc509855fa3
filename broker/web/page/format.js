// Formats numbers, sizes and times for people.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
const SPANS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const YEARS_100_MS = 100 * 365 * 86_400_000;

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let unit = 0;
  while (bytes >= 1000 && unit < UNITS.length - 1) [bytes, unit] = [bytes / 1000, unit + 1];
  return unit ? `${bytes.toFixed(bytes < 100 ? 1 : 0)} ${UNITS[unit]}` : `${Math.round(bytes)} B`;
}

export function count(number) {
  if (number === null || number === undefined) return "–";
  if (Math.abs(number) >= 10_000) {
    return Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(number);
  }
  return Intl.NumberFormat("en", { maximumFractionDigits: number < 10 ? 1 : 0 }).format(number);
}

export function whole(number) {
  return number === null || number === undefined ? "–" : Intl.NumberFormat("en").format(number);
}

/** Return a number of things: 1 partition, 2,000 partitions. */
export function things(number, noun) {
  return `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Return a sum of dollars; costs of a few requests are too small to be shown. */
export function money(dollars) {
  if (dollars > 0 && dollars < 0.01) return "< $0.01";
  return Intl.NumberFormat("en", { style: "currency", currency: "USD" }).format(dollars);
}

/** Return a sum of dollars, a small one by its first two digits: $0.000021. */
export function cost(dollars) {
  if (!(dollars > 0 && dollars < 0.01)) return money(dollars);
  return Intl.NumberFormat("en", { style: "currency", currency: "USD", maximumSignificantDigits: 2 }).format(dollars);
}

export function percent(share) {
  return share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`;
}

export function milliseconds(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  return ms < 100 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`;
}

export function duration(ms) {
  if (ms < 1000) return `${Math.max(Math.round(ms), 0)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  let left = Math.round(ms / 1000);
  const parts = [];
  for (const [name, seconds] of SPANS) {
    const number = Math.floor(left / seconds);
    left %= seconds;
    if (number || parts.length) parts.push(number ? `${number} ${name}` : "");
  }
  return parts.slice(0, 2).filter(Boolean).join(" ");
}

export function distance(atMs, nowMs) {
  if (atMs === null || atMs === undefined) return "–";
  if (Math.abs(atMs - nowMs) > YEARS_100_MS) return atMs > nowMs ? "never" : "long ago";
  return atMs > nowMs ? `in ${duration(atMs - nowMs)}` : `${duration(nowMs - atMs)} ago`;
}

export function moment(atMs) {
  if (atMs < 0 || Math.abs(atMs) > 8.64e15) return "no time";
  const at = new Date(atMs);
  return `${at.toLocaleDateString("sv")} ${at.toLocaleTimeString("sv")}`;
}
