// What somebody wrote and did not save: asked about before it is lost. Who asks, and how, is left to others.
import { useLayoutEffect, useRef } from "./html.js";

const forms = new Set();
let ask = async () => true;

/** `callback` puts the question, and tells whether what was written may be lost. */
export function onAsk(callback) { ask = callback; }

export function hasUnsaved() { return forms.size > 0; }

export async function mayBeLost() { return forms.size === 0 || ask(); }

/** What stood in forms is given up, or stands for something that is gone. */
export function forget() {
  forms.clear();
  watchTab();
}

/** For a closed tab the browser asks, in its own words. It keeps pages ready for Back only where nobody listens for this. */
function watchTab() {
  if (forms.size) addEventListener("beforeunload", stay);
  else removeEventListener("beforeunload", stay);
}

function stay(event) { event.preventDefault(); }

/** A form says whether something in it would be lost. At once, not after the next paint: who has just saved is not asked. */
export function useUnsaved(isChanged) {
  const form = useRef({});
  useLayoutEffect(() => {
    if (!isChanged) return undefined;
    forms.add(form.current);
    watchTab();
    return () => {
      forms.delete(form.current);
      watchTab();
    };
  }, [isChanged]);
}

/** Whether `value`, which is plain data, is another than at first. */
export function useChanged(value) {
  const now = JSON.stringify(value);
  const first = useRef(now);
  return now !== first.current;
}
