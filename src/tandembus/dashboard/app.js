// Sign in, then the frame with its pages.
import { html, render, useEffect, useState } from "./html.js";
import { api, onSignedOut } from "./api.js";
import { removeOldFiles } from "./growing_file.js";
import { link, usePlace } from "./router.js";
import { SessionContext, may } from "./session.js";
import { SignIn } from "./pages/sign_in.js";
import { Overview } from "./pages/overview.js";
import { Entities } from "./pages/entities.js";
import { EntityPage } from "./pages/entity.js";
import { PairPage } from "./pages/pair.js";
import { FaultsPage } from "./pages/faults.js";
import { CostPage } from "./pages/cost.js";
import { Empty, Toasts, UnsavedQuestion } from "./ui.js";
import { forget, mayBeLost } from "./unsaved.js";

const ICONS = {
  overview: "M3 11 11 4l8 7v8h-5v-5H8v5H3z",
  entities: "M3 5h16v4H3zM3 11h16v4H3zM3 17h10",
  pair: "M7 15a4 4 0 1 1 0-8h2M15 7a4 4 0 1 1 0 8h-2M8 11h6",
  faults: "M12 2 4 12h6l-1 8 8-11h-6z",
  cost: "M11 2v18M16 6c-1-2-9-3-9 1s9 3 9 7-8 3-10 1",
};
const PAGES = [
  { name: "overview", label: "Overview", show: Overview, needs: null },
  { name: "entities", label: "Entities", show: Entities, needs: null },
  { name: "pair", label: "Pair", show: PairPage, needs: "Manage" },
  { name: "faults", label: "Faults", show: FaultsPage, needs: "Manage" },
  { name: "cost", label: "Cost", show: CostPage, needs: "Manage" },
];
const HIDDEN = [{ name: "entity", label: "Entities", show: EntityPage, needs: null, below: "entities" }];

function Icon({ name }) {
  return html`<svg viewBox="0 0 22 22" fill="none" stroke="currentColor" stroke-width="1.7" stroke-linejoin="round" stroke-linecap="round" aria-hidden="true"><path d=${ICONS[name]} /></svg>`;
}

function themeNow() {
  return document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function ThemeButton() {
  const [theme, setTheme] = useState(themeNow());
  const other = theme === "dark" ? "light" : "dark";
  useEffect(() => {
    const look = () => setTheme(themeNow());
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", look);
    addEventListener("tandembus-theme", look);
    return () => {
      system.removeEventListener("change", look);
      removeEventListener("tandembus-theme", look);
    };
  }, []);
  function change() {
    document.documentElement.dataset.theme = other;
    try { localStorage.setItem("tandembus-theme", other); } catch { /* kept for this page only */ }
    dispatchEvent(new Event("tandembus-theme"));
  }
  return html`<button class="small" onClick=${change}>${other === "dark" ? "Dark" : "Light"} theme</button>`;
}

function Frame({ session, onSignOut }) {
  const { page, parameters, visit } = usePlace();
  const scoped = Boolean(session.scope);
  const pages = PAGES.filter((one) => !scoped && (!one.needs || may(session, one.needs)));
  const wanted = [...pages, ...HIDDEN].find((one) => one.name === page);
  const shown = scoped ? HIDDEN[0] : wanted;
  const given = scoped ? { ...parameters, path: parameters.path ?? session.scope } : parameters;
  useEffect(() => { document.querySelector(".page h1")?.focus({ preventScroll: true }); scrollTo(0, 0); }, [page, parameters.path]);
  return html`
    <a class="visually-hidden" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector(".page h1")?.focus(); }}>Skip to the page</a>
    <div class="top-bar" role="region" aria-label="Signed in"><span class="grow"><strong>${session.namespace}</strong> · ${session.policy}</span><${ThemeButton} /><button class="small" onClick=${onSignOut}>Sign out</button></div>
    <div class="frame">
      <div class="rail" role="region" aria-label="Namespace">
        <div class="brand"><img src="/$dashboard/icon.svg" alt="" />tandembus</div>
        <nav aria-label="Pages">${pages.map((one) => html`<a href=${link(one.name)} aria-current=${(shown?.below ?? shown?.name) === one.name ? "page" : null}><${Icon} name=${one.name} />${one.label}</a>`)}</nav>
        <div class="who">
          <div><strong>${session.namespace}</strong><br /><span class="muted">${session.policy}${scoped ? ` on ${session.scope}` : ""}: ${session.rights.join(", ")}</span></div>
          <div class="row"><${ThemeButton} /><button class="small" onClick=${onSignOut}>Sign out</button></div>
        </div>
      </div>
      <main class="page" id="main">${shown
        ? html`<${shown.show} key=${`${visit} ${shown.name} ${given.path ?? ""}`} parameters=${given} />`
        : html`<${Empty}>There is no such page, or the key is not good for it.<//>`}</main>
    </div>
    <${Toasts} /><${UnsavedQuestion} />`;
}

function App() {
  const [session, setSession] = useState(undefined);
  useEffect(() => {
    removeOldFiles();
    onSignedOut(() => setSession(null));
    const code = /^#sign-in=([\w-]+)$/.exec(location.hash)?.[1];
    if (code) history.replaceState(history.state, "", "/");
    const asked = code ? api.post("session", { code }) : api.get("session");
    const wordsFor = (error) => (error.status === 401 ? "This link was used before, or is older than an hour. The command tandembus dashboard prints a new one." : error.message);
    asked.then(setSession, (error) => setSession({ failure: code ? wordsFor(error) : null }));
    // A link that is pasted into a page that is open already changes what is behind '#', and loads nothing.
    const moved = () => { if (location.hash.startsWith("#sign-in=")) location.reload(); };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  if (session === undefined) return null;
  if (!session || session.failure !== undefined) return html`<${SignIn} failure=${session?.failure} onSignedIn=${setSession} />`;
  const leave = () => api.remove("session").finally(() => { setSession(null); location.hash = ""; });
  const signOut = async () => {
    if (!(await mayBeLost())) return;
    forget();
    leave();
  };
  return html`<${SessionContext.Provider} value=${session}><${Frame} session=${session} onSignOut=${signOut} /><//>`;
}

render(html`<${App} />`, document.getElementById("app"));
