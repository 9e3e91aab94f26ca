// Sending a new message, or an old one once more, changed or not.
import { html, useState } from "../../html.js";
import { api } from "../../api.js";
import { topicOf } from "../../paths.js";
import { Check, Dialog, Field, toast } from "../../ui.js";
import { useChanged } from "../../unsaved.js";
import { editedMessage, emptyMessage, isSendable, MessageForm, messageOf } from "./message_form.js";

export function SendMessage({ entity, onSent, onClose }) {
  const [edited, setEdited] = useState(emptyMessage());
  async function send() {
    const { sequence_number: number } = await api.post("messages", messageOf(edited), { path: entity.path });
    toast(number ? `Sent as number ${number}.` : "Sent.");
    onSent();
  }
  return html`<${Dialog} title=${`Send to ${entity.path}`} submit="Send" wide=${true} isReady=${isSendable(edited)} isChanged=${useChanged(messageOf(edited))} onSubmit=${send} onClose=${onClose}>
    <${MessageForm} edited=${edited} onChange=${setEdited} requiresSession=${entity.requires_session} />
  <//>`;
}

export function ResendMessage({ entity, subQueue, message, onSent, onClose }) {
  const home = topicOf(entity.path) ?? entity.path;
  const [edited, setEdited] = useState(editedMessage(message));
  const [to, setTo] = useState(home);
  const [remove, setRemove] = useState(false);
  async function send() {
    const target = to.trim() === home ? "" : to.trim();
    await api.post("messages/resend", { ...messageOf(edited), remove }, { path: entity.path, sub_queue: subQueue, sequence_number: message.sequence_number, to: target });
    toast(`Sent to ${to.trim() || home}.`);
    onSent();
  }
  return html`<${Dialog} title=${`Resend message ${message.sequence_number}`} submit="Resend" wide=${true} isReady=${isSendable(edited)} isChanged=${useChanged([messageOf(edited), to, remove])} onSubmit=${send} onClose=${onClose}>
    <div class="form">
      <${Field} label="Send to" value=${to} onInput=${setTo} help="A queue or topic of this namespace." />
      <${Check} label="Delete the original" help="Only once the new message is durable." checked=${remove} onChange=${setRemove} />
    </div>
    <${MessageForm} edited=${edited} onChange=${setEdited} />
  <//>`;
}
