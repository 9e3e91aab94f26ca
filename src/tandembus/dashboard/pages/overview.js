// Both namespaces of a pair at a glance: how they are, how deep, how fast.
import { html } from "../html.js";
import { api } from "../api.js";
import { Chart } from "../chart.js";
import { atLeast, bytes, count, plural, rate, short } from "../format.js";
import { usePoll, useSamples } from "../live.js";
import { link } from "../router.js";
import { Badge, Empty, Figure, Notice, Page, Panel, Trouble } from "../ui.js";

export function Overview() {
  const { data, error } = usePoll((signal) => api.get("overview", {}, signal), []);
  return html`<${Page} title="Overview">
    ${!data && html`<${Trouble} error=${error} />`}
    ${data && html`<${Side} view=${error ? { ...data.namespace, state: "unreachable", reason: error.message } : data.namespace} at=${data.at} role="This namespace" />
      ${data.partner && !error && html`<${Side} view=${data.partner} at=${data.at} role="Its partner" />`}`}
    ${!data && !error && html`<${Empty}>Asking the namespace…<//>`}
  <//>`;
}

function Side({ view, at, role }) {
  const samples = useSamples(view.name);
  if (view.counters) samples.add({ at: Date.parse(at), active: view.active, ...view.counters });
  if (view.state === "unreachable") {
    return html`<${Panel} title=${`${view.name}`} actions=${html`<${Badge} word=${view.state} />`}>
      <${Notice} kind="bad">${role} cannot be reached.${view.reason && html`<div class="small">${view.reason}</div>`}<//>
    <//>`;
  }
  const uncounted = view.queues + view.topics + view.subscriptions - view.counted_entities;
  const isCounted = view.active !== null || view.counted_entities === 0;
  const known = (value, write) => atLeast(value, uncounted > 0 && isCounted, write);
  return html`<${Panel} title=${view.name} bare=${true}
      actions=${html`<span class="muted">${role}</span><${Badge} word=${view.state} title=${view.reason} />${view.faults > 0 && html`<a href=${link("faults")}><${Badge} word=${`${view.faults} injected`} tone="warn" /></a>`}`}>
    ${view.reason && html`<div class="inside"><${Notice} kind="warn">${view.reason}<//></div>`}
    <div class="figures">
      <${Figure} label="In" value=${rate(samples.rate("sent"))} note=${`${count(view.counters.sent)} sent`} />
      <${Figure} label="Out" value=${rate(samples.rate("received"))} note=${`${count(view.counters.received)} received`} />
      <${Figure} label="Active" value=${known(view.active, short)} note=${uncounted > 0 ? `${count(uncounted)} ${uncounted === 1 ? "entity" : "entities"} not counted in full` : bytes(view.size_bytes)} />
      <${Figure} label="Dead letters" value=${known(view.dead_letter, short)} />
      <${Figure} label="Scheduled" value=${known(view.scheduled, short)} />
      <${Figure} label="Entities" value=${short(view.queues + view.topics)} note=${`queues ${count(view.queues)}, topics ${count(view.topics)}`} />
      <${Figure} label="Connections" value=${short(view.connections)} />
      <${Figure} label="Stores" value=${`${view.stores.filter((one) => one.state === "available").length} of ${view.stores.length}`} note=${plural(view.brokers.length, "message broker")} />
    </div>
    <div class="inside grid">
      <${Chart} title="Messages per second" label=${`Messages per second of ${view.name}`} format=${(value) => rate(value)}
        series=${[{ label: "in", values: samples.series("sent", true) }, { label: "out", values: samples.series("received", true) }]} />
      <${Chart} title="Active messages" label=${`Active messages of ${view.name}`} series=${[{ label: "active", values: samples.series("active") }]} />
    </div>
  <//>`;
}
