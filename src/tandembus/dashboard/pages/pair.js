// What a failover is doing: per entity when it went where, what waits in the backlog, how the syphon gets on.
import { html, useState } from "../html.js";
import { api } from "../api.js";
import { Chart } from "../chart.js";
import { ago, atLeast, bytes, clock, count, duration, plural, rate, short } from "../format.js";
import { usePoll, useSamples } from "../live.js";
import { link } from "../router.js";
import { Badge, Empty, Figure, Notice, Page, Panel, Table, Trouble, tone } from "../ui.js";

const STATES = ["healthy", "failing", "failed-over", "pinging", "syphoning", "back"];
const SPANS = [
  { value: "300", label: "the last 5 minutes" },
  { value: "900", label: "the last 15 minutes" },
  { value: "3600", label: "the last hour" },
  { value: "21600", label: "the last 6 hours" },
];

export function PairPage() {
  const { data, error } = usePoll((signal) => api.get("pair", {}, signal), []);
  const samples = useSamples("pair");
  if (data) samples.add({ at: Date.parse(data.at), active: data.backlog.active, moved: data.syphon.moved });
  return html`<${Page} title="Pair" badges=${data?.partner && html`<${Badge} word=${`${data.partner.name} ${data.partner.state}`} tone=${tone(data.partner.state)} title=${data.partner.reason} />`}>
    <${Trouble} error=${error} />
    ${!data && !error && html`<${Empty}>Asking both namespaces…<//>`}
    ${data && html`<${Story} data=${data} /><${Timeline} data=${data} /><${Backlog} data=${data} samples=${samples} />`}
  <//>`;
}

function Story({ data }) {
  const { partner } = data;
  if (data.role === "none" && !partner) {
    return html`<${Notice}>This namespace has no partner that it knows of, and nothing of a pair was seen. <code>tandembus up</code> starts two that know each other; else the setting${" "}<code>partner</code> names the other one.<//>`;
  }
  const away = partner?.state === "unreachable";
  return html`<div class="stack">
    <p class="muted">${data.name} is ${ROLES[data.role] ?? data.role}${partner ? `; its partner is ${partner.name}` : ""}.</p>
    ${away && html`<${Notice} kind="warn">${partner.name} cannot be reached: this is what ${data.name} saw by itself.${partner.reason && html`<div class="small">${partner.reason}</div>`}<//>`}
    ${data.is_partial && !away && html`<${Notice} kind="warn">Not every process has answered, or a part of the backlog is out of reach: figures may be too small.<//>`}
  </div>`;
}
const ROLES = { primary: "the primary", secondary: "the secondary", both: "primary and secondary at once", none: "one of a pair, and has seen no failover yet" };

function Timeline({ data }) {
  const [span, setSpan] = useState("300");
  const now = Date.parse(data.at);
  const from = now - Number(span) * 1000;
  const pick = html`<label class="row"><span class="muted">Show</span> <select class="own-width" value=${span} onChange=${(event) => setSpan(event.target.value)} aria-label="Time shown">
    ${SPANS.map((one) => html`<option value=${one.value}>${one.label}</option>`)}</select></label>`;
  return html`<${Panel} title="Timeline" actions=${pick}>
    ${data.entities.length === 0 && html`<${Empty}>No entity has failed over. Pings, diverted messages and syphons show up here, entity by entity.<//>`}
    ${data.entities.length > 0 && html`
      <div class="row legend" aria-hidden="true">${STATES.map((state) => html`<span class="key"><i class=${`swatch state-${state}`}></i>${state}</span>`)}</div>
      <ul class="lanes">${data.entities.map((entity) => html`<${Lane} key=${`${entity.primary} ${entity.path}`} entity=${entity} isPrimary=${data.role === "primary" || data.role === "both"} from=${from} now=${now} />`)}</ul>
      <div class="lane-axis muted" aria-hidden="true"><span>${clock(from)}</span><span>${clock((from + now) / 2)}</span><span>${clock(now)}</span></div>`}
  <//>`;
}

/** Entities are the primary's, backlog queues the secondary's: each has a page where it is. */
function Name({ path, isHere }) {
  return isHere ? html`<a class="wrap" href=${link("entity", { path })}>${path}</a>` : html`<span class="wrap">${path}</span>`;
}

function Lane({ entity, isPrimary, from, now }) {
  const spoken = entity.segments.map((segment) => `${segment.state} from ${clock(segment.from)}${segment.to ? ` to ${clock(segment.to)}` : ""}`).join(", ");
  const { pings } = entity;
  return html`<li class="lane">
    <div class="lane-head">
      <${Name} path=${entity.path} isHere=${isPrimary} />
      <${Badge} word=${entity.state} />
      <span class="muted">${entity.since ? `since ${clock(entity.since)}` : ""}</span>
    </div>
    <svg class="lane-bar" viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label=${`${entity.path}: ${spoken}`}>
      ${entity.segments.map((segment) => html`<${Segment} key=${segment.from} segment=${segment} from=${from} now=${now} />`)}
    </svg>
    <div class="lane-facts muted">
      ${count(entity.diverted)} diverted · ${count(entity.moved)} brought home${entity.waiting === null ? "" : ` · ${count(entity.waiting)} waiting`}
      ${pings.accepted + pings.refused > 0 ? ` · ${plural(pings.refused, "ping")} refused, ${count(pings.accepted)} accepted` : ""}
    </div>
  </li>`;
}

function Segment({ segment, from, now }) {
  const start = Math.max(Date.parse(segment.from), from);
  const end = Math.min(segment.to ? Date.parse(segment.to) : now, now);
  if (end < start) return null;
  const scale = 1000 / (now - from);
  const width = Math.max(3, (end - start) * scale);
  return html`<rect class=${`state-${segment.state}`} x=${(start - from) * scale} y="0" width=${width} height="20"><title>${segment.state} from ${clock(segment.from)}</title></rect>`;
}

function Backlog({ data, samples }) {
  const { backlog, syphon } = data;
  const eta = syphon.eta_s === null ? "–" : duration(Math.ceil(syphon.eta_s));
  const columns = [
    { head: "Backlog queue", cell: (queue) => html`<${Name} path=${queue.path} isHere=${data.role === "secondary" || data.role === "both"} />` },
    { head: "Waiting", number: true, cell: (queue) => atLeast(queue.active, queue.is_limited) },
    { head: "Dead letters", number: true, cell: (queue) => atLeast(queue.dead_letter, queue.is_limited) },
    { head: "Stored", number: true, cell: (queue) => atLeast(queue.size_bytes, queue.is_limited, bytes) },
    { head: "Oldest", cell: (queue) => (queue.oldest_at ? ago(queue.oldest_at, Date.parse(data.at)) : "–") },
    { head: "Syphons", number: true, cell: (queue) => count(queue.receivers) },
  ];
  return html`<${Panel} title="Backlog and syphon" bare=${true}>
    <div class="figures">
      <${Figure} label="Waiting" value=${atLeast(backlog.active, backlog.is_limited, short)} note="in backlog queues" />
      <${Figure} label="Age" value=${backlog.age_s === null ? "–" : duration(Math.round(backlog.age_s))} note="of the oldest" />
      <${Figure} label="Dead letters" value=${atLeast(backlog.dead_letter, backlog.is_limited, short)} />
      <${Figure} label="Syphon" value=${syphon.links > 0 ? "at work" : "none"} note=${plural(syphon.links, "link")} />
      <${Figure} label="Rate" value=${rate(syphon.rate_per_s)} note=${`${count(syphon.moved)} brought home`} />
      <${Figure} label="Drained in" value=${eta} note="at this rate" />
    </div>
    <div class="inside grid">
      <${Chart} title="Waiting" label="Messages in the backlog" series=${[{ label: "waiting", values: samples.series("active") }]} />
      <${Chart} title="Brought home" label="Messages brought home per second" format=${(value) => rate(value)} series=${[{ label: "home", values: samples.series("moved", true) }]} />
    </div>
    <${Table} cards=${true} label="Backlog queues" columns=${columns} rows=${backlog.queues} rowKey=${(queue) => queue.path} empty="There are no backlog queues: no client has been paired yet." />
  <//>`;
}
