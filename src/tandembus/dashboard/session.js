// Who is signed in, and what the key is good for.
import { createContext, useContext } from "./html.js";

export const SessionContext = createContext(null);
export function useSession() { return useContext(SessionContext); }

/** Whether the whole session has this right; single entities tell their own `rights`. */
export function may(subject, right) { return Boolean(subject?.rights?.includes(right)); }
