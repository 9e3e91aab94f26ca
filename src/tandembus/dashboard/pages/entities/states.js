// How an entity is, in words: the same on every page.
import { html } from "../../html.js";
import { atLeast, bytes } from "../../format.js";
import { may } from "../../session.js";
import { Badge } from "../../ui.js";

/** Both, since they are two things: what clients are allowed to do, and whether all fragments can be used. */
export function StateBadges({ entity }) {
  return html`<span class="row tight"><${Badge} word=${entity.status} />${entity.availability !== "Available" && html`<${Badge} word=${entity.availability} title="Not all fragments can be used now." />`}</span>`;
}

/** What is counted in an entity, in words. Who may not count has nothing to know. */
export function known(entity, value, write) {
  return atLeast(value, entity.availability === "Limited" && may(entity, "Listen"), write);
}

export function Filled({ entity }) {
  if (entity.size_bytes === null || !entity.max_size_bytes) return known(entity, entity.size_bytes, bytes);
  const share = Math.min(1, entity.size_bytes / entity.max_size_bytes);
  return html`<span class="filled"><span>${known(entity, entity.size_bytes, bytes)} <span class="muted">of ${bytes(entity.max_size_bytes)}</span></span>
    <meter min="0" max="1" low="0.8" high="0.95" optimum="0" value=${share} aria-label="Filled">${`${Math.round(share * 100)} %`}</meter></span>`;
}
