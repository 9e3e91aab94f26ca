import { html } from "../vendor/htm-preact.js";
import { Page } from "../ui.js";

export function Entities() {
  return html`<${Page} title="Entities"><//>`;
}
