// What the counted operations would cost on Azure: live, today, and because of a failover.
import { html, useState } from "../html.js";
import { api } from "../api.js";
import { bytes, count, rate, time } from "../format.js";
import { usePoll, useSamples } from "../live.js";
import { Badge, Empty, Figure, Page, Panel, Table, Trouble } from "../ui.js";

const REASONS = {
  normal: "the application's own traffic",
  failover: "diverted to a backlog queue",
  ping: "asking whether an entity is back",
  longpoll: "a syphon that waits",
  syphon: "bringing messages home",
};

export function CostPage() {
  const { data, error } = usePoll((signal) => api.get("cost", {}, signal), [], 2000);
  const samples = useSamples("cost");
  const total = data?.counters.reduce((sum, row) => sum + row.operations, 0);
  if (data) samples.add({ at: Date.parse(data.at), operations: total });
  return html`<${Page} title="Cost">
    <${Trouble} error=${error} />
    ${!data && !error && html`<${Empty}>Reading the meter…<//>`}
    ${data && html`
      <p class="muted">What the same operations would cost on Azure Service Bus, by the price list ${data.prices.name} of ${data.prices.date}, in ${data.prices.currency}: ${data.prices.unit_note}. Looking at messages here is billed, too: a peek is an operation.</p>
      <div class="panel"><div class="figures alone">
        <${Figure} label="Operations" value=${rate(samples.rate("operations"))} note=${`${count(total)} since ${time(data.since)}`} />
        <${Figure} label="Today" value=${money(data.today.total, data.prices.currency)} note=${`${count(data.today.operations)} operations on ${data.today.date}`} />
        <${Figure} label="Failover" value=${data.failover ? money(data.failover.extra, data.prices.currency) : "none"} note=${data.failover ? "more than without it" : "nothing diverted"} />
      </div></div>
      <${Failover} failover=${data.failover} currency=${data.prices.currency} />
      <${Panel} title=${`Bill of ${data.today.date}`} bare=${true}><${Lines} lines=${data.today.lines} label="Bill of today" currency=${data.prices.currency} /><//>
      <${Counters} rows=${data.counters} />`}
  <//>`;
}

function Failover({ failover, currency }) {
  if (!failover) return null;
  const isOver = Boolean(failover.until);
  return html`<${Panel} title="What the failover cost" bare=${true} actions=${html`<${Badge} word=${isOver ? "over" : "going on"} tone=${isOver ? "good" : "warn"} />`}>
    <div class="figures">
      <${Figure} label="Since" value=${time(failover.since).slice(11, 19)} note=${isOver ? `until ${time(failover.until)}` : time(failover.since)} />
      <${Figure} label="Operations" value=${count(failover.operations)} />
      <${Figure} label="Cost" value=${money(failover.total, currency)} />
      <${Figure} label="Without failover" value=${money(failover.without, currency)} note="the same messages" />
      <${Figure} label="More" value=${money(failover.extra, currency)} />
    </div>
    <${Lines} lines=${failover.lines} label="What the failover cost" currency=${currency} />
  <//>`;
}

function Lines({ lines, label, currency }) {
  const columns = [
    { head: "What", cell: (line) => html`<span class="wrap">${line.what}</span>` },
    { head: "Quantity", number: true, cell: (line) => (typeof line.quantity === "number" ? count(line.quantity) : line.quantity) },
    { head: "Cost", number: true, cell: (line) => money(line.cost, currency) },
  ];
  return html`<${Table} label=${label} columns=${columns} rows=${lines} rowKey=${(line) => line.what} empty="Nothing billable yet." />`;
}

function Counters({ rows }) {
  const [isAll, setAll] = useState(false);
  const sorted = [...rows].sort((one, other) => other.operations - one.operations);
  const columns = [
    { head: "Operation", cell: (row) => row.operation },
    { head: "Why", cell: (row) => html`<span title=${REASONS[row.reason]}>${row.reason}</span>` },
    { head: "Calls", number: true, cell: (row) => count(row.calls) },
    { head: "Messages", number: true, cell: (row) => count(row.messages) },
    { head: "Billed operations", number: true, cell: (row) => count(row.operations) },
    { head: "Bytes", number: true, cell: (row) => bytes(row.bytes) },
  ];
  const more = sorted.length > 12 && html`<button class="small" onClick=${() => setAll(!isAll)}>${isAll ? "Fewer" : `All ${sorted.length}`}</button>`;
  return html`<${Panel} title="Counted since the start" bare=${true} actions=${more}>
    <${Table} cards=${true} label="Operations counted" columns=${columns} rows=${isAll ? sorted : sorted.slice(0, 12)} rowKey=${(row) => `${row.operation} ${row.reason}`} empty="Nothing has been counted yet." /><//>`;
}

function money(text, currency) {
  if (text === null || text === undefined) return "–";
  const value = Number(text);
  // Two figures that say something, however small: an operation costs less than a millionth.
  const digits = value !== 0 && Math.abs(value) < 1 ? Math.min(12, Math.max(4, 1 - Math.floor(Math.log10(Math.abs(value))))) : 2;
  return `${value.toFixed(digits)} ${currency}`;
}
