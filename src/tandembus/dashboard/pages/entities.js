// All entities of the namespace: found by a part of their path, topics opened to their subscriptions.
import { html, useEffect, useRef, useState } from "../html.js";
import { api } from "../api.js";
import { count, rate } from "../format.js";
import { usePoll, useSettled } from "../live.js";
import { nameOf } from "../paths.js";
import { adjust, link } from "../router.js";
import { may, useSession } from "../session.js";
import { Awaited, Badge, Choice, Empty, Field, Page, Pager, Panel, Table, Trouble } from "../ui.js";
import { CreateEntity } from "./entities/create.js";
import { Filled, StateBadges, known } from "./entities/states.js";

const TOP = 50;
const MAX_SHOWN_SUBSCRIPTIONS = 20;
const KINDS = [{ value: "", label: "Queues and topics" }, { value: "queue", label: "Queues" }, { value: "topic", label: "Topics" }, { value: "subscription", label: "Subscriptions" }];

export function Entities({ parameters }) {
  const { kind = "", search = "" } = parameters;
  const skip = Number(parameters.skip) || 0;
  const session = useSession();
  const [open, setOpen] = useState([]);
  const [making, setMaking] = useState(null);
  const { data, error, isLoading, refresh } = usePoll((signal) => ask({ kind, search, skip }, open, signal), [kind, search, skip, open.join("\n")], 2000);
  const rates = useRates(data);
  const toggle = (path) => setOpen((before) => (before.includes(path) ? before.filter((one) => one !== path) : [...before, path]));
  const canCreate = may(session, "Manage") && !session.scope;
  const actions = canCreate && html`
    <button class="primary" onClick=${() => setMaking({ kind: "queue" })}>Create queue</button>
    <button class="primary" onClick=${() => setMaking({ kind: "topic" })}>Create topic</button>`;
  return html`<${Page} title="Entities" actions=${actions}>
    <${Panel} title=${data ? `${count(data.count)} ${data.count === 1 ? "entity" : "entities"}` : "Entities"} bare=${true}>
      <div class="inside bar">
        <${Search} search=${search} />
        <${Choice} label="Kind" options=${KINDS} value=${kind} onChange=${(value) => adjust({ kind: value, skip: "" })} />
      </div>
      <${Trouble} error=${error} />
      ${data && html`<${Awaited} isLoading=${isLoading}><${Table} label="Entities" rows=${rowsOf(data, open)} rowKey=${(row) => row.key} rowClass=${(row) => (row.isBelow ? "below" : "")}
          columns=${columnsOf({ open, toggle, rates, onCreate: setMaking })} empty=${search ? "No path has this part." : "There are none yet."} /><//>
        <${Pager} skip=${skip} top=${TOP} count=${data.count} onMove=${(next) => adjust({ skip: next || "" })} />`}
      ${!data && !error && html`<${Empty}>Asking the namespace…<//>`}
    <//>
    ${making && html`<${CreateEntity} ...${making} onClose=${() => setMaking(null)} onCreated=${() => { setMaking(null); refresh(); }} />`}
  <//>`;
}

async function ask({ kind, search, skip }, open, signal) {
  const found = await api.get("entities", { kind, search, skip, top: TOP }, signal);
  const shown = found.entities.filter((entity) => open.includes(entity.path));
  const below = await Promise.all(shown.map((topic) => api.get("entities", { topic: topic.path, top: MAX_SHOWN_SUBSCRIPTIONS }, signal)));
  return { ...found, at: Date.now(), below: Object.fromEntries(shown.map((topic, index) => [topic.path, below[index]])) };
}

/** The search stands in the address once it stands still, so that it can be kept and shared. */
function Search({ search }) {
  const [text, setText] = useState(search);
  const settled = useSettled(text);
  const told = useRef(search);
  useEffect(() => {
    if (settled === told.current) return;
    told.current = settled;
    adjust({ search: settled, skip: "" });
  }, [settled]);
  useEffect(() => {
    if (search === told.current) return;
    told.current = search;
    setText(search);
  }, [search]);
  return html`<${Field} label="Search" type="search" value=${text} onInput=${setText} placeholder="part of a path" />`;
}

/** Per second, between two answers, by path. */
function useRates(data) {
  const kept = useRef({ at: 0, totals: new Map(), rates: new Map() });
  const before = kept.current;
  if (data && data.at !== before.at) {
    const all = [...data.entities, ...Object.values(data.below).flatMap((part) => part.entities)].filter((entity) => entity.counters);
    const seconds = (data.at - before.at) / 1000;
    const per = (entity, name) => Math.max(0, (entity.counters[name] - before.totals.get(entity.path)[name]) / seconds);
    kept.current = {
      at: data.at,
      totals: new Map(all.map((entity) => [entity.path, entity.counters])),
      rates: new Map(all.filter((entity) => before.totals.has(entity.path)).map((entity) => [entity.path, { in: per(entity, "sent"), out: per(entity, "received") }])),
    };
  }
  return kept.current.rates;
}

function rowsOf(data, open) {
  return data.entities.flatMap((entity) => {
    const own = { key: entity.path, entity };
    const part = open.includes(entity.path) && data.below[entity.path];
    if (!part) return [own];
    const below = part.entities.map((one) => ({ key: one.path, entity: one, isBelow: true }));
    return [own, ...below, { key: `${entity.path} end`, isBelow: true, topic: entity, hidden: part.count - part.entities.length }];
  });
}

function columnsOf({ open, toggle, rates, onCreate }) {
  const figure = (show) => (row) => (row.entity ? show(row.entity) : "");
  return [
    { head: "Path", cell: (row) => (row.entity ? html`<${Name} row=${row} isOpen=${open.includes(row.entity.path)} toggle=${toggle} />` : html`<${End} row=${row} onCreate=${onCreate} />`) },
    { head: "Kind", wide: true, cell: figure((entity) => entity.kind) },
    { head: "State", wide: true, cell: figure((entity) => html`<${StateBadges} entity=${entity} />`) },
    { head: "Active", number: true, cell: figure((entity) => (entity.kind === "topic" ? "" : known(entity, entity.active))) },
    { head: "Dead letters", number: true, cell: figure((entity) => (entity.kind === "topic" ? "" : known(entity, entity.dead_letter))) },
    { head: "Scheduled", number: true, wide: true, cell: figure((entity) => known(entity, entity.scheduled)) },
    { head: "In", number: true, wide: true, cell: figure((entity) => rate(rates.get(entity.path)?.in)) },
    { head: "Out", number: true, wide: true, cell: figure((entity) => rate(rates.get(entity.path)?.out)) },
    { head: "Size", wide: true, cell: figure((entity) => (entity.kind === "subscription" ? "" : html`<${Filled} entity=${entity} />`)) },
  ];
}

function Name({ row, isOpen, toggle }) {
  const { entity, isBelow } = row;
  const isTopic = entity.kind === "topic";
  return html`<div class="name">
    ${isTopic && html`<button class="fold" aria-expanded=${String(isOpen)} aria-label=${`Subscriptions of ${entity.path}`} onClick=${() => toggle(entity.path)}>${isOpen ? "▾" : "▸"}</button>`}
    <span class="wrap"><a href=${link("entity", { path: entity.path })}>${isBelow ? nameOf(entity.path) : entity.path}</a>
      ${isTopic && html`<span class="muted small">${`${count(entity.subscriptions)} ${entity.subscriptions === 1 ? "subscription" : "subscriptions"}`}</span>`}
      ${entity.partitioned && html`<${Badge} word="partitioned" plain=${true} />`}
      ${entity.requires_session && html`<${Badge} word="sessions" plain=${true} />`}
      ${isRemarkable(entity) && html`<span class="narrow"><${StateBadges} entity=${entity} /></span>`}
    </span>
  </div>`;
}

/** On narrow screens there is no column for the state. */
function isRemarkable(entity) { return entity.status !== "Active" || entity.availability !== "Available"; }

function End({ row, onCreate }) {
  const { topic, hidden } = row;
  return html`<div class="row">
    ${hidden > 0 && html`<a href=${link("entity", { path: topic.path, tab: "subscriptions" })}>${`${count(hidden)} more`}</a>`}
    ${may(topic, "Manage") && html`<button class="small" onClick=${() => onCreate({ kind: "subscription", topic: topic.path })}>Create subscription</button>`}
  </div>`;
}
