// How figures and times are written. Everything returns text.
const NUMBER = new Intl.NumberFormat("en");
const UNITS = ["bytes", "KB", "MB", "GB", "TB"];

export function count(value) {
  return value === null || value === undefined ? "–" : NUMBER.format(value);
}

/** A count or size of which a part may not be known. `isLimited`: something is out of reach and not counted. */
export function atLeast(value, isLimited, write = count) {
  if (!isLimited) return write(value);
  return value === null || value === undefined ? "unknown" : `at least ${write(value)}`;
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10_000) return NUMBER.format(Math.round(value));
  return value < 1e6 ? `${(value / 1e3).toFixed(1)}k` : value < 1e9 ? `${(value / 1e6).toFixed(1)}M` : `${(value / 1e9).toFixed(1)}G`;
}

export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined || !Number.isFinite(perSecond)) return "–";
  return `${perSecond >= 100 || perSecond === 0 ? short(perSecond) : perSecond.toFixed(1)}/s`;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit === 0 || value >= 100 ? Math.round(value) : Number(value.toFixed(1))} ${UNITS[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "never";
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const found = [];
  let rest = seconds;
  for (const [unit, size] of parts) {
    const whole = unit === "s" ? Math.round(rest * 10) / 10 : Math.floor(rest / size);
    if (whole) found.push(`${NUMBER.format(whole)} ${unit}`);
    rest -= whole * size;
  }
  return found.slice(0, 2).join(" ") || "0 s";
}

export function time(text) {
  if (!text) return "–";
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "") + " UTC";
}

/** For columns whose head says that it is UTC. */
export function plainTime(text) { return time(text).replace(/(\.\d+)? UTC$/, ""); }

export function clock(text) {
  return text ? new Date(text).toLocaleTimeString([], { hour12: false }) : "–";
}

export function ago(text, now = Date.now()) {
  if (!text) return "–";
  const seconds = (now - new Date(text).getTime()) / 1000;
  return seconds < 1 ? "just now" : `${duration(Math.round(seconds))} ago`;
}

export function plural(number, noun) { return `${count(number)} ${noun}${number === 1 ? "" : "s"}`; }
