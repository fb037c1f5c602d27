// The address after # holds all that a view shows, so that a link shows the same again.
import { useEffect, useState } from "preact/hooks";
import type { Range } from "./api";

export type View = "time" | "incident" | "processes" | "process" | "services" | "findings" | "captures" | "capture" | "compare" | "search" | "document" | "recorder";

export interface Route {
  view: View;
  /** Number of the incident, row of the process, id of the capture, name of the document. */
  item: string;
  query: URLSearchParams;
}

const VIEWS: View[] = ["time", "incident", "processes", "process", "services", "findings", "captures", "capture", "compare", "search", "document", "recorder"];

export function parse(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...rest] = path.split("/");
  const view = VIEWS.find((one) => one === name) ?? "time";
  let item = "";
  try {
    item = decodeURIComponent(rest.join("/"));
  } catch {
    // A link that somebody cut short: it names nothing.
  }
  return { view, item, query: new URLSearchParams(search) };
}

export type Changes = Record<string, string | number | boolean | undefined>;

/** The address of a view; what is undefined or false is left out. */
export function link(view: View, item = "", query: Changes = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== false && value !== "") search.set(key, value === true ? "1" : String(value));
  }
  const text = search.toString();
  return `#/${view}${item ? `/${encodeURIComponent(item)}` : ""}${text ? `?${text}` : ""}`;
}

export function go(to: string, replace = false): void {
  // Drawn at once: by way of location.hash what was there before would be seen again for a moment.
  if (replace) history.replaceState(history.state, "", to);
  else if (to !== location.hash) history.pushState(null, "", to);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/** The number in the history of what is shown. */
let place = 0;

/** Whether what is shown was gone back or forward to: then it has a number already. To be asked once after each change of the address. */
export function isReturn(): boolean {
  const known = (history.state as { place?: number } | null)?.place;
  const isOther = known !== undefined && known !== place;
  place = known ?? place + 1;
  if (known === undefined) history.replaceState({ place }, "");
  return isOther;
}

/** The same view with some of its query changed. */
export function change(route: Route, changes: Changes, replace = false): void {
  const query: Changes = {};
  for (const [key, value] of route.query) query[key] = value;
  go(link(route.view, route.item, { ...query, ...changes }), replace);
}

export function useRoute(): Route {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => set(parse(location.hash));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return route;
}

export const round = (value: number): number => Math.round(value * 1000) / 1000;

export function number(route: Route, key: string): number | undefined {
  const text = route.query.get(key);
  if (text === null || text === "") return undefined;
  const value = Number(text);
  return Number.isFinite(value) ? value : undefined;
}

export function range(route: Route): Range | undefined {
  const since = number(route, "since");
  const until = number(route, "until");
  return since !== undefined && until !== undefined && until > since ? { since, until } : undefined;
}

export const rangeQuery = (range: Range): Changes => ({ since: round(range.since), until: round(range.until) });
