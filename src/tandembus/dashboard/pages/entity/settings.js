// Settings to change, and the end of an entity or of its messages.
import { html, useEffect, useState } from "../../html.js";
import { address, api } from "../../api.js";
import { go } from "../../router.js";
import { changes, isComplete, SettingsFields, useSettings } from "../../settings_form.js";
import { may } from "../../session.js";
import { attempt, Confirm, Panel, toast, Trouble } from "../../ui.js";
import { forget, useUnsaved } from "../../unsaved.js";

export function Settings({ entity, refresh }) {
  return html`<${Form} entity=${entity} refresh=${refresh} /><${Endings} entity=${entity} refresh=${refresh} />`;
}

function Form({ entity, refresh }) {
  const { settings, error } = useSettings();
  const [before, setBefore] = useState(entity.settings);
  const [values, setValues] = useState(entity.settings);
  const [version, setVersion] = useState(0);
  const [failure, setFailure] = useState(null);
  const changed = changes(values, before);
  const isChanged = Object.keys(changed).length > 0;
  useUnsaved(isChanged);
  const start = (given) => { setBefore(given); setValues(given); setFailure(null); setVersion((one) => one + 1); };
  const elsewhere = entity.modified_at;
  useEffect(() => { if (!isChanged) start(entity.settings); }, [elsewhere]);
  async function save(event) {
    event.preventDefault();
    setFailure(null);
    try {
      start((await api.patch("entity", { settings: changed }, { path: entity.path })).settings);
      toast("The settings are saved.");
      refresh();
    } catch (refused) {
      setFailure(refused);
    }
  }
  return html`<${Panel} title="Settings">
    <${Trouble} error=${error} />
    ${settings && html`<form class="form" onSubmit=${save}>
      <${SettingsFields} key=${version} fields=${settings[entity.kind]} values=${values} onChange=${setValues} />
      <${Trouble} error=${failure} />
      <div class="row"><button class="primary" disabled=${!isChanged || !isComplete(values)}>Save settings</button>
        <button type="button" disabled=${!isChanged} onClick=${() => start(entity.settings)}>Undo</button></div>
    </form>`}
  <//>`;
}

function Endings({ entity, refresh }) {
  const [asking, setAsking] = useState(null);
  const close = () => setAsking(null);
  const isOff = entity.status === "Disabled";
  async function purge(part, what) {
    await api.raw("POST", `${address(entity.path)}${part}/$purge`);
    toast(`${what} of ${entity.path} are deleted.`);
    close();
    refresh();
  }
  async function remove() {
    await api.remove("entity", { path: entity.path });
    toast(`Deleted ${entity.path}.`);
    forget();
    go("entities");
  }
  const setStatus = (status) => attempt(() => api.patch("entity", { settings: { status } }, { path: entity.path }).then(refresh), status === "Active" ? "Enabled." : "Disabled.");
  const canPurge = entity.kind !== "topic" && may(entity, "Listen");
  return html`<${Panel} title="Disable, purge, delete">
    <div class="acts">
      <${Act} text=${isOff ? "Nobody can send or receive now." : "Nobody can send or receive until it is enabled again; messages stay."}
        button=${isOff ? html`<button onClick=${() => setStatus("Active")}>Enable</button>` : html`<button onClick=${() => setAsking("disable")}>Disable</button>`} />
      ${canPurge && html`<${Act} text="Deletes all waiting messages. They are lost." button=${html`<button class="danger" onClick=${() => setAsking("purge")}>Purge messages</button>`} />
        <${Act} text="Deletes all dead letters. They are lost." button=${html`<button class="danger" onClick=${() => setAsking("purge-dead")}>Purge dead letters</button>`} />`}
      <${Act} text=${`Deletes the ${entity.kind} and everything in it.`} button=${html`<button class="danger" onClick=${() => setAsking("delete")}>${`Delete ${entity.kind}`}</button>`} />
    </div>
    ${asking === "disable" && html`<${Confirm} title=${`Disable ${entity.path}?`} text="Its senders and receivers are disconnected." submit="Disable" onClose=${close} onConfirm=${async () => { close(); await setStatus("Disabled"); }} />`}
    ${asking === "purge" && html`<${Confirm} title=${`Purge ${entity.path}?`} text="All waiting messages are deleted. This cannot be undone." submit="Purge messages" onClose=${close} onConfirm=${() => purge("", "The messages")} />`}
    ${asking === "purge-dead" && html`<${Confirm} title=${`Purge the dead letters of ${entity.path}?`} text="All dead letters are deleted. This cannot be undone." submit="Purge dead letters" onClose=${close} onConfirm=${() => purge("/$DeadLetterQueue", "The dead letters")} />`}
    ${asking === "delete" && html`<${Confirm} title=${`Delete ${entity.path}?`} text="It is gone with all its messages. This cannot be undone." word=${entity.path} submit=${`Delete ${entity.kind}`} onClose=${close} onConfirm=${remove} />`}
  <//>`;
}

function Act({ text, button }) {
  return html`<div class="row between"><span class="muted">${text}</span>${button}</div>`;
}
