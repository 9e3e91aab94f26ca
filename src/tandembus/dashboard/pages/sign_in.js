// Nothing else works before this.
import { html, useState } from "../vendor/htm-preact.js";
import { api } from "../api.js";
import { Field, Notice, Trouble } from "../ui.js";

export function SignIn({ failure, onSignedIn }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  async function go(event) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      onSignedIn(await api.post("session", { connection_string: text.trim() }));
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  }
  return html`<main class="door"><form class="panel" onSubmit=${go}>
    <header><img src="/$dashboard/icon.svg" alt="" width="26" height="26" /><h1>tandembus</h1></header>
    <div class="inside form">
      ${failure && html`<${Notice} kind="warn">${failure}<//>`}
      <${Field} label="Connection string" type="password" value=${text} onInput=${setText} name="connection-string" autofocus required
        help=${html`Of the namespace, or of one queue or topic. <code>tandembus connection-string</code> prints it; <code>tandembus dashboard</code> prints a link that needs none.`} />
      <${Trouble} error=${error} />
      <button class="primary" disabled=${busy || !text.trim()}>Sign in</button>
    </div>
  </form></main>`;
}
