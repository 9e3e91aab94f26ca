// Outages on purpose: what is broken now, break something, heal it.
import { html, useState } from "../html.js";
import { api } from "../api.js";
import { duration, plainTime, plural } from "../format.js";
import { usePoll } from "../live.js";
import { Badge, Check, Confirm, Dialog, Field, Page, Panel, Table, Trouble, attempt } from "../ui.js";
import { useChanged } from "../unsaved.js";

const KINDS = [
  { value: "unavailable", label: "Unavailable: everything fails" },
  { value: "slow", label: "Slow: everything takes longer" },
  { value: "throttled", label: "Throttled: the service says that it is busy" },
  { value: "disk-full", label: "Disk full: nothing more can be stored" },
];
const SCOPES = [
  { value: "namespace", label: "The whole namespace" },
  { value: "entity", label: "An entity" },
  { value: "fragment", label: "A fragment of an entity" },
  { value: "broker", label: "A message broker" },
  { value: "store", label: "A messaging store" },
];

export function FaultsPage({ parameters }) {
  const faults = usePoll((signal) => fetchJson("/$faults", signal), []);
  const topology = usePoll((signal) => fetchJson("/$topology?top=1", signal), [], 5000);
  const [adding, setAdding] = useState(Boolean(parameters.target));
  const [healing, setHealing] = useState(false);
  const rows = faults.data?.faults ?? [];
  const heal = (fault) => attempt(() => api.raw("DELETE", `/$faults/${encodeURIComponent(fault.id)}`), `${fault.target} is healed`).then(faults.refresh);
  const columns = [
    { head: "Fault", cell: (fault) => html`<strong class="wrap">${fault.id}</strong>` },
    { head: "Of", cell: (fault) => html`<span class="wrap">${fault.target}</span>` },
    { head: "What", cell: (fault) => html`<span class="nowrap"><${Badge} word=${fault.kind} tone="bad" />${fault.latency_ms ? ` ${fault.latency_ms} ms` : ""}</span>` },
    { head: "Hits", cell: (fault) => html`<span class="nowrap">${Math.round(fault.probability * 1000) / 10} %</span>` },
    { head: "State", cell: (fault) => html`<${Badge} word=${fault.state} tone=${fault.state === "active" ? "warn" : ""} />` },
    { head: "Since (UTC)", cell: (fault) => plainTime(fault.started_at) },
    { head: "Ends", cell: (fault) => html`<span class="nowrap">${fault.ends_in_s === null ? "when it is healed" : `in ${duration(Math.ceil(fault.ends_in_s))}`}</span>` },
    { head: html`<span class="visually-hidden">Heal</span>`, number: true, cell: (fault) => html`<button class="small" aria-label=${`Heal ${fault.id}`} onClick=${() => heal(fault)}>Heal</button>` },
  ];
  return html`<${Page} title="Faults" actions=${html`
      <button class="primary" onClick=${() => setAdding(true)}>Inject a fault</button>
      ${rows.length > 0 && html`<button onClick=${() => setHealing(true)}>Heal everything</button>`}`}>
    <p class="muted">Break a part of the namespace on purpose, and see what your application does. Everything else goes on.</p>
    <${Trouble} error=${faults.error} />
    <${Panel} title="Injected now" bare=${true}><${Table} cards=${true} label="Injected faults" columns=${columns} rows=${rows} rowKey=${(fault) => fault.id} empty="Nothing is broken on purpose." /><//>
    ${topology.data && html`<${Parts} topology=${topology.data} />`}
    ${adding && html`<${AddFault} topology=${topology.data} target=${parameters.target} taken=${rows} onClose=${() => setAdding(false)}
      onAdded=${() => { setAdding(false); faults.refresh(); }} />`}
    ${healing && html`<${Confirm} title="Heal everything" text=${`${plural(rows.length, "fault")} ${rows.length === 1 ? "ends" : "end"} at once.`} submit="Heal everything" onClose=${() => setHealing(false)}
      onConfirm=${async () => { await api.raw("DELETE", "/$faults"); setHealing(false); faults.refresh(); }} />`}
  <//>`;
}

function Parts({ topology }) {
  const stores = [
    { head: "Store", cell: (store) => html`<span class="nowrap">store ${store.index}</span>` },
    { head: "State", cell: (store) => html`<${Badge} word=${store.state} title=${store.reason} />` },
    { head: "Message broker", cell: (store) => `broker ${store.broker}` },
    { head: "Process", cell: (store) => processOf(topology, store.broker) },
    { head: "Reason", cell: (store) => store.reason && html`<span class="wrap">${store.reason}</span>` },
  ];
  return html`<${Panel} title="Message brokers and stores" bare=${true}>
    <${Table} cards=${true} label="Message brokers and stores" columns=${stores} rows=${topology.stores} rowKey=${(store) => store.index} /><//>`;
}

function processOf(topology, index) {
  const broker = topology.brokers.find((one) => one.index === index);
  if (!broker) return "–";
  return html`<${Badge} word=${broker.state} /> <span class="muted">pid ${broker.pid ?? "–"}${broker.restarts ? `, ${plural(broker.restarts, "restart")}` : ""}</span>`;
}

function AddFault({ topology, target, taken, onClose, onAdded }) {
  const [first, ...rest] = (target ?? "namespace").split("/");
  const last = first === "fragment" ? rest.pop() : "0";
  const [scope, setScope] = useState(first);
  const [name, setName] = useState(first === "entity" || first === "fragment" ? rest.join("/") : "");
  const [index, setIndex] = useState(first === "broker" || first === "store" ? rest[0] : last);
  const [kind, setKind] = useState("unavailable");
  const [latency, setLatency] = useState("500");
  const [share, setShare] = useState("100");
  const [isTimed, setTimed] = useState(true);
  const [seconds, setSeconds] = useState("120");
  const needsName = scope === "entity" || scope === "fragment";
  const isChanged = useChanged([scope, name, index, kind, latency, share, isTimed, seconds]);
  const whole = { namespace: "namespace", entity: `entity/${name}`, fragment: `fragment/${name}/${index}`, broker: `broker/${index}`, store: `store/${index}` }[scope];
  async function inject() {
    const body = { target: whole, kind, probability: Number(share) / 100 };
    if (kind === "slow") body.latency_ms = Number(latency);
    if (isTimed) body.for_s = Number(seconds);
    await api.raw("PUT", `/$faults/${freeId(whole, kind, taken)}`, body);
    onAdded();
  }
  return html`<${Dialog} title="Inject a fault" submit="Inject" danger=${true} isReady=${!needsName || Boolean(name)} isChanged=${isChanged} onSubmit=${inject} onClose=${onClose}>
    <${Field} label="What fails" value=${scope} onInput=${setScope} options=${SCOPES} />
    ${needsName && html`<${Field} label="Entity" value=${name} onInput=${setName} help="Its path, such as orders or events/subscriptions/large." autofocus />`}
    ${scope === "fragment" && html`<${Field} label="Fragment" value=${index} onInput=${setIndex} options=${numbers(16)} />`}
    ${scope === "broker" && html`<${Field} label="Message broker" value=${index} onInput=${setIndex} options=${numbers(topology?.brokers.length ?? 1)} />`}
    ${scope === "store" && html`<${Field} label="Messaging store" value=${index} onInput=${setIndex} options=${numbers(topology?.stores.length ?? 1)} />`}
    <${Field} label="How" value=${kind} onInput=${setKind} options=${KINDS} />
    ${kind === "slow" && html`<${Field} label="Milliseconds more" type="number" min="1" max="600000" value=${latency} onInput=${setLatency} />`}
    <${Field} label="Of 100 operations hit" type="number" min="0.1" max="100" step="0.1" value=${share} onInput=${setShare} />
    <${Check} label="Ends by itself" checked=${isTimed} onChange=${setTimed} help="Else it lasts until it is healed." />
    ${isTimed && html`<${Field} label="After seconds" type="number" min="1" max="2592000" value=${seconds} onInput=${setSeconds} />`}
  <//>`;
}

function numbers(length) { return Array.from({ length }, (_, index) => String(index)); }

/** Named after what it breaks, as the command line does. */
function freeId(target, kind, taken) {
  const name = `${target}-${kind}`.replace(/[^\w.-]+/g, "-").slice(0, 60);
  for (let number = 1; ; number += 1) {
    const id = number === 1 ? name : `${name}-${number}`;
    if (!taken.some((fault) => fault.id === id)) return id;
  }
}

function fetchJson(url, signal) { return api.raw("GET", url, undefined, signal); }
