// The fragments of an entity as a map: where each is, how deep, how it is, and whether the load is even.
import { html } from "../../html.js";
import { atLeast, bytes, count } from "../../format.js";
import { Badge, Notice, Panel } from "../../ui.js";

const EVEN_SKEW = 1.5;
/** Below, no spread means anything. */
const FEW_MESSAGES = 100;

/** How deep the fullest fragment is against the mean; null without messages. */
export function skewOf(fragments) {
  const depths = fragments.map(depthOf).filter((depth) => depth !== null);
  const total = depths.reduce((sum, depth) => sum + depth, 0);
  return total && depths.length > 1 ? { factor: Math.max(...depths) / (total / depths.length), total } : null;
}

/** Topics keep only what is scheduled. */
function depthOf(fragment) { return fragment.active ?? fragment.scheduled; }

export function FragmentMap({ entity }) {
  const { fragments } = entity;
  const skew = skewOf(fragments);
  const total = skew?.total ?? fragments.reduce((sum, one) => sum + (depthOf(one) ?? 0), 0);
  const out = fragments.filter((one) => one.state !== "available");
  const isInOneStore = fragments.length > 1 && fragments.every((one) => one.store === fragments[0].store);
  const title = fragments.length === 1 ? "One fragment" : `${fragments.length} fragments`;
  return html`<${Panel} title=${title} actions=${skew && html`<${Skew} skew=${skew} />`}>
    <div class="stack">
      ${out.length > 0 && html`<${Notice} kind="warn">${out.length === 1 ? `Fragment ${out[0].index} cannot be used now` : `${out.length} fragments cannot be used now`}${out[0].reason ? `: ${out[0].reason}` : "."}<//>`}
      ${isInOneStore && html`<${Notice}>All fragments lie in one messaging store, as the namespace had no other when the entity was created. To spread them, start it with --brokers N or --stores N, and create the entity again.<//>`}
      <div class=${`fragments ${fragments.length === 1 ? "one" : ""}`} role="list" aria-label="Fragments">${fragments.map((one) => html`<${Cell} key=${one.index} fragment=${one} total=${total} />`)}</div>
    </div>
  <//>`;
}

function Skew({ skew }) {
  const isEven = skew.factor < EVEN_SKEW;
  return html`<span class="muted">The deepest has ${skew.factor.toFixed(1)} × the mean</span>
    ${skew.total >= FEW_MESSAGES && html`<${Badge} word=${isEven ? "even" : "skewed"} tone=${isEven ? "good" : "warn"} />`}`;
}

function Cell({ fragment, total }) {
  const depth = depthOf(fragment);
  const share = total && depth !== null ? depth / total : 0;
  const percent = depth === null ? "–" : `${Math.round(share * 100)} %`;
  const isOut = fragment.state !== "available";
  const spoken = `Fragment ${fragment.index}: ${fragment.state}, ${depth === null ? "depth not known" : `${count(depth)} messages, ${percent} of all`}, message broker ${fragment.broker ?? "not known"}, messaging store ${fragment.store}`;
  return html`<div class=${`fragment ${isOut ? "out" : ""}`} role="listitem" aria-label=${spoken} title=${fragment.reason} style=${{ "--share": String(share) }}>
    <div class="row between tight"><strong>${fragment.index}</strong><span>${percent}</span></div>
    <div class="depth">${atLeast(depth, isOut && depth === null)}</div>
    <${Badge} word=${fragment.state} tone=${isOut ? "bad" : "good"} />
    <div class="share"><span></span></div>
    <div class="where">${fragment.broker !== null && html`<span>broker ${fragment.broker}</span>`}<span>store ${fragment.store}</span>${fragment.size_bytes !== null && html`<span>${count(fragment.dead_letter)} dead</span><span>${bytes(fragment.size_bytes)}</span>`}</div>
  </div>`;
}
