// One queue, topic or subscription: its tabs stand in the address.
import { html, useState } from "../html.js";
import { api } from "../api.js";
import { usePoll, useSamples } from "../live.js";
import { nameOf, topicOf } from "../paths.js";
import { link } from "../router.js";
import { may, useSession } from "../session.js";
import { Badge, Empty, Page, Tabs, Trouble } from "../ui.js";
import { Messages } from "./entity/messages.js";
import { Rules } from "./entity/rules.js";
import { SendMessage } from "./entity/send.js";
import { Settings } from "./entity/settings.js";
import { Subscriptions } from "./entity/subscriptions.js";
import { Summary } from "./entity/summary.js";

const TABS = [
  { name: "summary", label: "Summary", show: Summary, kinds: ["queue", "topic", "subscription"], needs: null },
  { name: "messages", label: "Messages", show: Messages, kinds: ["queue", "topic", "subscription"], needs: "Listen" },
  { name: "subscriptions", label: "Subscriptions", show: Subscriptions, kinds: ["topic"], needs: null },
  { name: "rules", label: "Rules", show: Rules, kinds: ["subscription"], needs: "Manage" },
  { name: "settings", label: "Settings", show: Settings, kinds: ["queue", "topic", "subscription"], needs: "Manage" },
];

export function EntityPage({ parameters }) {
  const { path } = parameters;
  const { data, error, refresh } = usePoll(async (signal) => ({ entity: await api.get("entity", { path }, signal), at: Date.now() }), [path]);
  const samples = useSamples(path);
  const entity = data?.entity;
  if (entity) samples.add({ at: data.at, active: entity.active, scheduled: entity.scheduled, dead_letter: entity.dead_letter, sent: entity.counters?.sent ?? null, received: entity.counters?.received ?? null });
  const isGone = error?.status === 404;
  return html`<${Page} title=${nameOf(path)} crumbs=${html`<${Crumbs} path=${path} />`} badges=${entity && !isGone && html`<${Badges} entity=${entity} />`}
      actions=${entity && !isGone && html`<${SendButton} entity=${entity} onSent=${refresh} />`}>
    <${Trouble} error=${error} />
    ${entity && !isGone && html`<${Shown} entity=${entity} samples=${samples} parameters=${parameters} refresh=${refresh} />`}
    ${!entity && !error && html`<${Empty}>Asking the namespace…<//>`}
  <//>`;
}

function Crumbs({ path }) {
  const session = useSession();
  const topic = topicOf(path);
  return html`${!session.scope && html`<a href=${link("entities")}>Entities</a>`}
    ${topic && html`<span> / <a href=${link("entity", { path: topic, tab: "subscriptions" })}>${topic}</a> / subscriptions</span>`}`;
}

function Badges({ entity }) {
  return html`<span class="row tight">
    <${Badge} word=${entity.kind} plain=${true} />
    <${Badge} word=${entity.status} /><${Badge} word=${entity.availability} />
    ${entity.partitioned && html`<${Badge} word="partitioned" plain=${true} />`}
    ${entity.requires_session && html`<${Badge} word="sessions" plain=${true} />`}
  </span>`;
}

function SendButton({ entity, onSent }) {
  const [sending, setSending] = useState(false);
  if (entity.kind === "subscription" || !may(entity, "Send")) return null;
  return html`<button class="primary" onClick=${() => setSending(true)}>Send message</button>
    ${sending && html`<${SendMessage} entity=${entity} onClose=${() => setSending(false)} onSent=${() => { setSending(false); onSent(); }} />`}`;
}

function Shown({ entity, samples, parameters, refresh }) {
  const offered = TABS.filter((tab) => tab.kinds.includes(entity.kind) && (!tab.needs || may(entity, tab.needs)));
  const shown = offered.find((tab) => tab.name === parameters.tab) ?? offered[0];
  const tabs = offered.map((tab) => ({ name: tab.name, label: tab.label, href: link("entity", { path: entity.path, tab: tab.name }) }));
  return html`<${Tabs} tabs=${tabs} current=${shown.name} label="Parts of the entity" />
    <${shown.show} entity=${entity} samples=${samples} parameters=${parameters} refresh=${refresh} />`;
}
