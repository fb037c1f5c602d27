import "uplot/dist/uPlot.min.css";
import "./base.css";
import "./timeline.css";
import "./lanes.css";
import "./incident.css";
import "./graph.css";
import "./tables.css";
import "./flame.css";
import "./heat.css";
import "./search.css";
import "./phone.css";
import { type RefObject, render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Captures, CaptureView } from "./captures";
import { Compare } from "./compare";
import { Findings } from "./findings";
import { IncidentView } from "./incident";
import { ProcessLife, Processes } from "./processes";
import { Recorder } from "./recorder";
import { isReturn, link, type Route, rangeQuery, useRoute, type View } from "./route";
import { DocumentView, Search } from "./search";
import { Services } from "./services";
import { type Found, type Shown, useIncidents, useRecording, useShown, useTheme } from "./state";
import { keyOnTimeline, Timeline } from "./timeline";

const TABS: [View, string][] = [
  ["time", "Time line"],
  ["processes", "Processes"],
  ["services", "Services"],
  ["findings", "Findings"],
  ["captures", "Captures"],
  ["compare", "Compare"],
  ["search", "Search"],
  ["recorder", "Recorder"],
];

/** Views without a tab of their own, the tab that they belong to, and what they are called. */
const BELOW: Partial<Record<View, [tab: View, name: string]>> = {
  incident: ["time", "Incident"],
  process: ["processes", "Process"],
  capture: ["captures", "Capture"],
  document: ["search", "Document"],
};

/** With fingers, and with a mouse and keys. */
const KEYS: [string, string][] = [
  ["tap", "set the moment, and read the values there"],
  ["one finger", "moves the time line: earlier, later"],
  ["two fingers", "zoom"],
  ["drag", "zoom to what is selected"],
  ["click", "set the moment"],
  ["← →", "earlier, later"],
  ["+ −", "zoom in and out; also Ctrl and the wheel"],
  ["Shift + wheel", "earlier, later"],
  [", .", "the moment one sample earlier, later"],
  ["P", "processes at the moment"],
  ["L", "follow the newest sample"],
  ["Esc", "back"],
  ["↑ ↓ ← →", "in a flame graph: from frame to frame; Enter zooms, Esc shows the whole; in the graph of an incident: from link to link, Enter opens its evidence"],
  ["?", "this list"],
];

function Page() {
  const route = useRoute();
  const [theme, toggleTheme] = useTheme();
  const { recording, error, isLost, incidentsChanged } = useRecording();
  const shown = useShown(recording, route);
  const found = useIncidents(shown, route, incidentsChanged);
  const help = useRef<HTMLDialogElement>(null);
  useKeys(route, shown, () => help.current?.showModal());
  const main = useRef<HTMLElement>(null);
  const name = nameOf(route);
  useTitle(name, recording?.host);
  useArrival(route, main);
  const views = useRef<HTMLElement>(null);
  useEffect(() => {
    if (views.current) showCurrent(views.current);
  }, [route.view]);
  return (
    <>
      <header>
        <button type="button" class="skip" onClick={() => main.current?.focus()}>
          Skip to the content
        </button>
        <h1>
          <a href={link("time")}>Mitra</a>
        </h1>
        <span class="host">{recording?.host}</span>
        <nav ref={views} aria-label="Views">
          {TABS.map(([view, label]) => (
            <a key={view} href={link(view, "", shown && !shown.isLive ? rangeQuery(shown.range) : {})} aria-current={isTab(route.view, view) ? "page" : undefined}>
              {label}
            </a>
          ))}
        </nav>
        <span class="tools">
          {shown?.isLive && <span class="live">live</span>}
          <button type="button" onClick={toggleTheme} aria-label={`Use ${theme === "dark" ? "light" : "dark"} colours`} title="Light or dark">
            ◐
          </button>
          <button type="button" onClick={() => help.current?.showModal()} aria-label="Help: keys and gestures" title="Keys and gestures (?)">
            ?
          </button>
        </span>
      </header>
      <div role="status" class={isLost ? "lost" : "unseen"}>
        {isLost ? "The server does not answer. What is shown stays; it is asked again." : ""}
      </div>
      <div role="status" class="unseen">
        {shown?.isLive ? "live: follows the newest sample" : ""}
      </div>
      <main ref={main} tabIndex={-1} aria-label={name}>
        {error && (
          <p class="error" role="alert">
            {error}
          </p>
        )}
        {shown ? <Shows route={route} shown={shown} found={found} theme={theme} /> : !error && <p class="note">…</p>}
      </main>
      <footer>{recording && `mitra ${recording.version} · times are UTC`}</footer>
      <dialog ref={help} aria-labelledby="keys" onClick={(event) => event.target === event.currentTarget && help.current?.close()}>
        <div class="help">
          <h2 id="keys">Keys and gestures</h2>
          <dl>
            {KEYS.map(([key, what]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
          <button type="button" onClick={() => help.current?.close()}>
            Close
          </button>
        </div>
      </dialog>
    </>
  );
}

/** On a phone the list of views is wider than the screen; the page itself stays where it is. */
function showCurrent(views: HTMLElement): void {
  const [current, all] = [views.querySelector("a[aria-current]"), views].map((one) => one?.getBoundingClientRect());
  if (!current || !all || (current.left >= all.left && current.right <= all.right)) return;
  views.scrollLeft += current.left - all.left - (all.width - current.width) / 2;
}

const isTab = (view: View, tab: View): boolean => view === tab || BELOW[view]?.[0] === tab;

function Shows({ route, shown, found, theme }: { route: Route; shown: Shown; found: Found | undefined; theme: string }) {
  switch (route.view) {
    case "time":
      return <Timeline route={route} shown={shown} found={found} theme={theme} />;
    case "incident":
      return <IncidentView key={route.item} route={route} shown={shown} found={found} theme={theme} />;
    case "processes":
      return <Processes route={route} shown={shown} />;
    case "process":
      return <ProcessLife route={route} shown={shown} theme={theme} />;
    case "services":
      return <Services shown={shown} />;
    case "findings":
      return <Findings found={found} />;
    case "captures":
      return <Captures shown={shown} />;
    case "capture":
      return <CaptureView key={route.item} route={route} />;
    case "compare":
      return <Compare route={route} shown={shown} />;
    case "search":
      return <Search route={route} shown={shown} />;
    case "document":
      return <DocumentView key={route.item} route={route} shown={shown} />;
    case "recorder":
      return <Recorder shown={shown} />;
  }
}

const FIRST_LENGTH = history.length;

/** Back within this page: one that was shown before in the same tab is no view of ours. */
function back(): void {
  const { navigation } = window as unknown as { navigation?: { canGoBack: boolean } };
  if (navigation ? navigation.canGoBack : history.length > FIRST_LENGTH) history.back();
}

function useKeys(route: Route, shown: Shown | undefined, help: () => void): void {
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
      if (event.key === "?") help();
      else if (event.key === "Escape") back();
      else if (!(shown && route.view === "time" && keyOnTimeline(event, route, shown))) return;
      event.preventDefault();
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, [route, shown]);
}

/** What a view is called. */
function nameOf(route: Route): string | undefined {
  const below = BELOW[route.view]?.[1];
  return below ? `${below} ${route.item}` : TABS.find(([one]) => one === route.view)?.[1];
}

function useTitle(view: string | undefined, host: string | undefined): void {
  const [name] = useState(() => document.title);
  useEffect(() => {
    document.title = [view, host, name].filter(Boolean).join(" · ");
  }, [view, host]);
}

/** Another view begins at its top, and has the focus where what had it is gone. Back in the history the browser knows the place. */
function useArrival(route: Route, main: RefObject<HTMLElement>): void {
  const isBack = useRef(false);
  const isFirst = useRef(true);
  useEffect(() => {
    const changed = () => {
      isBack.current = isReturn();
    };
    changed();
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  useEffect(() => {
    if (!isFirst.current) {
      if (!isBack.current) window.scrollTo(0, 0);
      if (document.activeElement === document.body) main.current?.focus({ preventScroll: true });
    }
    isFirst.current = false;
  }, [route.view, route.item]);
}

render(<Page />, document.getElementById("page")!);
