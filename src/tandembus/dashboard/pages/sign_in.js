// Nothing else works before this.
import { html, useState } from "../html.js";
import { api } from "../api.js";
import { Field, Notice, Trouble } from "../ui.js";

const ROOT_POLICY = "RootManageSharedAccessKey";

/** A key alone is the namespace's own. */
export function credentials(text) {
  const given = text.trim();
  return /(^|;)\s*Endpoint\s*=/i.test(given) ? { connection_string: given } : { key_name: ROOT_POLICY, key: given };
}

export function SignIn({ failure, onSignedIn }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  async function go(event) {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      onSignedIn(await api.post("session", credentials(text)));
    } catch (refused) {
      setError(refused);
      setBusy(false);
    }
  }
  return html`<main class="door"><form class="panel" onSubmit=${go}>
    <header><img src="/$dashboard/icon.svg" alt="" width="26" height="26" /><h1>tandembus</h1></header>
    <div class="inside form">
      ${failure && html`<${Notice} kind="warn">${failure}<//>`}
      <${Field} label="Connection string or key" type="password" value=${text} onInput=${setText} name="connection-string" autofocus required
        help=${html`Of the namespace, or of one queue or topic; a key alone is that of ${ROOT_POLICY}. <code>tandembus connection-string</code> prints it; <code>tandembus dashboard</code> prints a link that needs none.`} />
      <${Trouble} error=${error} />
      <button class="primary" disabled=${busy || !text.trim()}>Sign in</button>
    </div>
  </form></main>`;
}
