// Everything that is drawn comes through here: `html` shows characters that are not seen, in whatever text they stand. They
// stay in the page beside their codes, so that what is copied is what was there.
import { h, html as plain } from "./vendor/htm-preact.js";
import { hasUnseen, partsOf, spelled } from "./unseen.js";

export * from "./vendor/htm-preact.js";

/** These elements hold nothing but text. */
const TEXT_ONLY = new Set(["option", "title"]);
/** Attributes that people read or hear. */
const TOLD = ["title", "aria-label", "placeholder", "alt"];
const done = new WeakSet();

export function html(...template) { return seen(plain(...template), seenText); }

function seen(child, showText) {
  if (typeof child === "string") return hasUnseen(child) ? showText(child) : child;
  if (Array.isArray(child)) return child.map((one) => seen(one, showText));
  if (child?.props && !done.has(child)) prepare(child);
  return child;
}

function prepare(node) {
  done.add(node);
  const { type, props } = node;
  const isElement = typeof type === "string";
  if (isElement) for (const name of TOLD) if (typeof props[name] === "string") props[name] = spelled(props[name]);
  // A component's texts are shown where it puts them, which comes through here as well.
  if (props.children !== undefined) props.children = seen(props.children, !isElement ? (text) => text : TEXT_ONLY.has(type) ? spelled : seenText);
}

function seenText(text) {
  return partsOf(text).map((part) => {
    if (!part.codes) return part.text;
    const mark = h("span", { class: "unseen", "data-codes": part.codes }, part.text);
    done.add(mark);
    return mark;
  });
}
