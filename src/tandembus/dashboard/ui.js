// The parts that pages are made of. Texts are handed over as texts: nothing here makes markup out of them.
import { html, useEffect, useRef, useState } from "./html.js";
import { count as format } from "./format.js";
import { useLasting } from "./live.js";
import { mayBeLost, onAsk, useUnsaved } from "./unsaved.js";
import { spelled, unseenIn } from "./unseen.js";

export function Page({ title, crumbs, badges, actions, children }) {
  useEffect(() => { document.title = `${typeof title === "string" ? spelled(title) : "tandembus"} · tandembus`; }, [title]);
  return html`
    ${crumbs && html`<div class="crumbs">${crumbs}</div>`}
    <div class="title"><h1 tabindex="-1">${title}</h1>${badges}${actions && html`<div class="actions">${actions}</div>`}</div>
    ${children}`;
}

export function Panel({ title, actions, bare, children }) {
  return html`<section class="panel" aria-label=${title}>
    ${title && html`<header><h2>${title}</h2>${actions && html`<div class="actions">${actions}</div>`}</header>`}
    ${bare ? children : html`<div class="inside">${children}</div>`}
  </section>`;
}

export function Figure({ label, value, note }) {
  return html`<div class="figure"><div class="label">${label}</div><div class="value">${value}</div>${note && html`<div class="note">${note}</div>`}</div>`;
}

const TONES = {
  available: "good", Available: "good", Active: "good", ready: "good", healthy: "good", back: "good", active: "good",
  limited: "warn", Limited: "warn", starting: "warn", failing: "warn", pending: "warn", SendDisabled: "warn", ReceiveDisabled: "warn",
  scheduled: "info", deferred: "info", syphoning: "info", pinging: "warn",
  unavailable: "bad", unreachable: "bad", Disabled: "bad", down: "bad", "failed-over": "bad", stopped: "bad",
};
export function tone(word) { return TONES[word] ?? ""; }
export function Badge({ word, tone: wanted, title, plain }) {
  return html`<span class=${`badge ${wanted ?? tone(word)} ${plain ? "plain" : ""}`} title=${title}>${word}</span>`;
}

export function Notice({ kind = "", children }) {
  return html`<div class=${`notice ${kind}`} role=${kind === "bad" ? "alert" : "status"}>${children}</div>`;
}

/** What went wrong, in the namespace's own words; nothing while all is well. */
export function Trouble({ error }) {
  return error ? html`<${Notice} kind="bad">${error.message}<//>` : null;
}

export function Empty({ children }) { return html`<div class="empty">${children}</div>`; }

/** Around what stays until something newer is there; `isStale`: what is shown answers another question, and is not to be used. */
export function Awaited({ isLoading, isStale, children }) {
  const isLong = useLasting(isLoading);
  return html`<div class="awaited">
    <div class="sign" role="status">${isLong && html`<span class="loading">Loading…</span>`}</div>
    <div class=${isLong && isStale ? "faded" : ""} aria-busy=${String(Boolean(isLoading))} inert=${Boolean(isStale)}>${children}</div>
  </div>`;
}

export function Facts({ rows }) {
  return html`<dl class="facts">${rows.map(([name, value]) => html`<dt>${name}</dt><dd>${value ?? "–"}</dd>`)}</dl>`;
}

/** columns: { head, cell(row), number?, wide? (left out on narrow screens), control? (the head does something, too) }; rowKey(row) keeps rows in place between updates.
    `cards`: on narrow screens each row is a card, with the heads before its values; browsers forget there that it is a table,
    so its parts say what they are. */
export function Table({ columns, rows, rowKey, rowClass, empty, label, cards }) {
  if (!rows.length) return html`<${Empty}>${empty ?? "Nothing here."}<//>`;
  const kind = (column) => ["number", "wide", "control"].filter((one) => column[one]).join(" ");
  const is = (role) => (cards ? role : null);
  const name = (column) => (cards && typeof column.head === "string" && column.head ? column.head : null);
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0"><table class=${cards ? "cards" : ""} role=${is("table")} aria-label=${label}>
    <thead role=${is("rowgroup")}><tr role=${is("row")}>${columns.map((column) => html`<th scope="col" role=${is("columnheader")} class=${kind(column)}>${column.head}</th>`)}</tr></thead>
    <tbody role=${is("rowgroup")}>${rows.map((row) => html`<tr key=${rowKey(row)} role=${is("row")} class=${rowClass?.(row)}>${columns.map((column) => html`<td role=${is("cell")} data-head=${name(column)} class=${kind(column)}>${column.cell(row)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

export function Pager({ skip, top, count, onMove }) {
  if (count <= top && !skip) return null;
  return html`<nav class="pager" aria-label="Parts of the list">
    <span class="muted">${`${format(skip + 1)} to ${format(Math.min(skip + top, count))} of ${format(count)}`}</span>
    <button class="small" disabled=${skip === 0} onClick=${() => onMove(Math.max(0, skip - top))}>Previous</button>
    <button class="small" disabled=${skip + top >= count} onClick=${() => onMove(skip + top)}>Next</button>
  </nav>`;
}

let lastId = 0;
/** A name within the document that no other part of the page has. */
export function useId() {
  const id = useRef(null);
  if (!id.current) id.current = `part-${lastId += 1}`;
  return id.current;
}

export function Tabs({ tabs, current, label }) {
  return html`<nav class="tabs" aria-label=${label}>${tabs.map((tab) => html`<a href=${tab.href} aria-current=${tab.name === current ? "page" : null}>${tab.label}</a>`)}</nav>`;
}

/** A control with its name; `help` describes it and is no part of the name. What is not seen in it is told, since a control
    shows nothing but text. */
export function Field({ label, help, value, onInput, type = "text", options, rows, "aria-describedby": described, ...rest }) {
  const id = useId();
  const change = (event) => onInput(event.target.value);
  const unseen = type === "password" ? null : unseenIn(String(value ?? ""));
  const common = { id, "aria-describedby": [help && `${id}-help`, unseen && `${id}-unseen`, described].filter(Boolean).join(" ") || null, ...rest };
  let control;
  if (options) {
    control = html`<select value=${value} onChange=${change} ...${common}>
      ${options.map((option) => html`<option value=${option.value ?? option} selected=${(option.value ?? option) === value}>${option.label ?? option}</option>`)}
    </select>`;
  } else if (rows) {
    control = html`<textarea rows=${rows} value=${value} onInput=${change} spellcheck="false" ...${common}></textarea>`;
  } else {
    control = html`<input type=${type} value=${value} onInput=${change} autocomplete="off" spellcheck="false" ...${common} />`;
  }
  return html`<div class="field"><label for=${id}>${label}</label>${control}${help && html`<span class="help" id=${`${id}-help`}>${help}</span>`}
    ${unseen && html`<span class="help" id=${`${id}-unseen`}>${`Has characters that are not seen: ${unseen}.`}</span>`}</div>`;
}

export function Check({ label, help, checked, onChange, ...rest }) {
  const id = useId();
  return html`<div class="check"><input type="checkbox" id=${id} checked=${checked} aria-describedby=${help ? `${id}-help` : null} onChange=${(event) => onChange(event.target.checked)} ...${rest} />
    <span><label for=${id}>${label}</label>${help && html`<span class="help" id=${`${id}-help`}>${help}</span>`}</span></div>`;
}

/** One of a few; options: { value, label }. */
export function Choice({ label, options, value, onChange }) {
  const name = useId();
  return html`<fieldset class="choice"><legend class="visually-hidden">${label}</legend>
    ${options.map((option) => html`<label key=${option.value}><input type="radio" name=${name} value=${option.value} checked=${option.value === value} onChange=${() => onChange(option.value)} /><span>${option.label}</span></label>`)}
  </fieldset>`;
}

/** What few people need, behind a word. */
export function More({ label, open, children }) {
  return html`<details class="more" open=${open}><summary>${label}</summary><div class="form">${children}</div></details>`;
}

/** A modal dialog around a form. `onSubmit` may be async and throw: its text is shown, and the dialog stays.
    `actions`: more buttons beside the last ones; `wide`: for what needs room; `isChanged`: something would be lost with it,
    which Escape alone does not do; `startsAtCancel`: where Enter does no harm. */
export function Dialog({ title, submit, danger, onSubmit, onClose, children, actions, cancel = "Cancel", wide, isReady = true, isChanged = false, startsAtCancel = false }) {
  const dialog = useRef(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useUnsaved(isChanged);
  useEffect(() => {
    const element = dialog.current;
    element.showModal();
    return () => element.close();
  }, []);
  async function go(event) {
    event.preventDefault();
    if (busy || !isReady || !submit) return;
    setBusy(true);
    setError(null);
    try {
      await onSubmit();
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  }
  async function close(event) {
    event.preventDefault();
    event.stopPropagation();
    if (!isChanged || (await mayBeLost())) onClose();
  }
  // A browser closes a dialog at the second Escape whatever "cancel" answers, but not where the key itself is taken.
  const pressed = (event) => { if (event.key === "Escape" && !event.isComposing) close(event); };
  return html`<dialog ref=${dialog} class=${wide ? "wide" : ""} aria-label=${title} onCancel=${close} onKeyDown=${pressed}>
    <form onSubmit=${go}>
      <header><h2>${title}</h2><button type="button" class="quiet" aria-label="Close" onClick=${close}>✕</button></header>
      <div class="inside">${children}<${Trouble} error=${error} /></div>
      <footer>
        ${actions && html`<div class="row">${actions}</div>`}
        <button type="button" autofocus=${startsAtCancel} onClick=${onClose}>${cancel}</button>
        ${submit && html`<button class=${danger ? "danger" : "primary"} disabled=${busy || !isReady}>${submit}</button>`}
      </footer>
    </form>
  </dialog>`;
}

/** Asks before something is lost. `word`: has to be typed first. */
export function Confirm({ title, text, submit, word, onConfirm, onClose }) {
  const [typed, setTyped] = useState("");
  return html`<${Dialog} title=${title} submit=${submit} danger=${true} startsAtCancel=${!word} isReady=${!word || typed === word} onSubmit=${onConfirm} onClose=${onClose}>
    <p>${text}</p>
    ${word && html`<${Field} label=${`Type ${word} to confirm`} value=${typed} onInput=${setTyped} autofocus />`}
  <//>`;
}

/** Put before what somebody wrote is lost, wherever that is. */
export function UnsavedQuestion() {
  const [isAsked, setAsked] = useState(false);
  const answer = useRef(() => {});
  const say = (isLost) => { setAsked(false); answer.current(isLost); };
  useEffect(() => {
    onAsk(() => new Promise((resolve) => { answer.current = resolve; setAsked(true); }));
    return () => answer.current(false);
  }, []);
  if (!isAsked) return null;
  return html`<${Dialog} title="Leave without saving?" submit="Leave" danger=${true} cancel="Stay" startsAtCancel=${true} onSubmit=${() => say(true)} onClose=${() => say(false)}>
    <p>What you changed here is not saved, and is lost when you leave.</p>
  <//>`;
}

let showToast = () => {};
export function toast(text, kind = "good") { showToast({ text, kind, id: Math.random() }); }
export function Toasts() {
  const [shown, setShown] = useState([]);
  showToast = (one) => {
    setShown((before) => [...before.slice(-3), one]);
    setTimeout(() => setShown((before) => before.filter((other) => other.id !== one.id)), 6000);
  };
  return html`<div class="toasts" role="status" aria-live="polite">${shown.map((one) => html`<div key=${one.id} class=${`notice ${one.kind}`}>${one.text}</div>`)}</div>`;
}

/** Shows at once what `act` says when it fails, else `done`. */
export async function attempt(act, done) {
  try {
    const result = await act();
    if (done) toast(typeof done === "function" ? done(result) : done);
    return result;
  } catch (error) {
    toast(error.message, "bad");
    return undefined;
  }
}
