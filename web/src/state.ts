// What all views share: the recording, its incidents, whether the server is there.
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { ApiError, DAY_S, type Finding, follow, type IncidentLine, type IncidentList, json, type Range, type Recording, span } from "./api";
import { parseTime } from "./format";
import { number, range, type Route } from "./route";

export interface Shown {
  recording: Recording;
  /** All that is recorded. */
  whole: Range;
  /** What the view shows. */
  range: Range;
  isLive: boolean;
}

const HOUR = 3600;
/** Recordings up to this length are looked through as a whole. */
const SHORT_RECORDING = 6 * HOUR;

export function useRecording(): { recording: Recording | undefined; error: string; isLost: boolean; incidentsChanged: number; reload: () => void } {
  const [recording, setRecording] = useState<Recording>();
  const [error, setError] = useState("");
  const [isLost, setLost] = useState(false);
  const [incidentsChanged, setChanged] = useState(0);
  const reload = useCallback(() => {
    json<Recording>("recording").then(
      (answer) => {
        setRecording(answer);
        setError("");
        setLost(false);
      },
      (failure: Error) => {
        setLost(!(failure instanceof ApiError));
        if (failure instanceof ApiError) setError(failure.message);
      },
    );
  }, []);
  useEffect(() => {
    reload();
    let hadLost = false;
    return follow({
      sample: reload,
      incidents: () => setChanged((count) => count + 1),
      lost: () => {
        hadLost = true;
        setLost(true);
        // It says why, where there is an answer.
        reload();
      },
      open: () => {
        if (hadLost) {
          setChanged((count) => count + 1);
          reload();
        }
        hadLost = false;
      },
      hidden: () => {
        hadLost = true;
      },
    });
  }, []);
  return { recording, error, isLost, incidentsChanged, reload };
}

export function useShown(recording: Recording | undefined, route: Route): Shown | undefined {
  return useMemo(() => {
    if (!recording) return undefined;
    // Whole seconds, so that no rounding in an address cuts off a sample. Ranges end before their last moment.
    const since = Math.floor(parseTime(recording.since));
    const until = Math.floor(Math.max(parseTime(recording.until), since + recording.interval_s)) + 1;
    const whole = { since, until };
    const asked = range(route);
    const isLive = !asked && recording.is_live;
    const length = number(route, "span") ?? HOUR;
    return { recording, whole, isLive, range: asked ?? { since: isLive ? until - length : Math.max(since, until - length), until } };
  }, [recording, route]);
}

/** Incidents are looked for in more than is shown, because they need quiet time to compare with; in whole hours, so that
 *  the server is asked for the same again while one looks around. */
function caseRange(shown: Shown, route: Route): Range {
  if (route.view === "incident") return shown.range;
  const { whole } = shown;
  if (whole.until - whole.since <= SHORT_RECORDING && !shown.recording.is_live) return whole;
  const since = Math.floor((shown.range.since - HOUR) / HOUR) * HOUR;
  const until = Math.ceil((shown.range.until + 1) / HOUR) * HOUR;
  return { since: Math.max(since, Math.floor(whole.since)), until };
}

/** A long range, day by day: the server explains a day at once. The last one comes first. */
function days(range: Range): Range[] {
  if (range.until - range.since <= DAY_S) return [range];
  const pieces: Range[] = [];
  for (let until = range.until; until > range.since; ) {
    const since = Math.max(range.since, Math.ceil(until / DAY_S - 1) * DAY_S);
    pieces.push({ since, until });
    until = since;
  }
  return pieces;
}

/** An incident, and the range in which it has its number. */
export type FoundIncident = IncidentLine & { of: Range };

export interface Found {
  range: Range;
  incidents: FoundIncident[];
  findings: Finding[];
  left_out: number;
  /** Days that have yet to be looked through. */
  missing: number;
  error: string;
  /** How often the server has said that they are others. */
  changed: number;
}

export function useIncidents(shown: Shown | undefined, route: Route, changed: number): Found | undefined {
  const asked = shown && caseRange(shown, route);
  const [found, set] = useState<Found>();
  useEffect(() => {
    if (!asked) return;
    const abort = new AbortController();
    const look = async () => {
      const pieces = days(asked);
      let all: Found = { range: asked, incidents: [], findings: [], left_out: 0, missing: pieces.length, error: "", changed };
      for (const [index, piece] of pieces.entries()) {
        const part = await json<IncidentList>("incidents", span(piece), abort.signal).catch((error: Error) => error);
        if (abort.signal.aborted) return;
        all = { ...all, missing: pieces.length - index - 1 };
        if (part instanceof ApiError && part.status === 404) all.error ||= pieces.length === 1 ? part.message : "";
        else if (part instanceof Error) all.error = part.message;
        else {
          all.incidents = [...part.incidents.map((one) => ({ ...one, of: piece })), ...all.incidents];
          if (index === 0) all.findings = part.findings ?? [];
          all.left_out += part.left_out ?? 0;
        }
        set(all);
      }
    };
    void look();
    return () => abort.abort();
  }, [asked?.since, asked?.until, changed]);
  return found;
}

export type Theme = "light" | "dark";

/** What a phone's browser has around the page: `--panel` of base.css. */
const BARS: Record<Theme, string> = { light: "#ffffff", dark: "#151b23" };

export function useTheme(): [Theme, () => void] {
  const dark = useMemo(() => window.matchMedia("(prefers-color-scheme: dark)"), []);
  const [chosen, choose] = useState(() => localStorage.getItem("theme"));
  const [isDark, setDark] = useState(dark.matches);
  useEffect(() => {
    const changed = () => setDark(dark.matches);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  const theme: Theme = chosen === "light" || chosen === "dark" ? chosen : isDark ? "dark" : "light";
  document.documentElement.dataset["theme"] = theme;
  for (const meta of document.querySelectorAll<HTMLMetaElement>("meta[name=theme-color]")) meta.content = BARS[theme];
  const toggle = () => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", next);
    choose(next);
  };
  return [theme, toggle];
}

/** An answer that is asked for again when its address changes, or `again`. */
export function useJson<T>(path: string, query: Record<string, string | number | undefined>, again: string | number = ""): { answer: T | undefined; error: string } {
  const [state, set] = useState<{ answer: T | undefined; error: string }>({ answer: undefined, error: "" });
  useEffect(() => {
    const abort = new AbortController();
    json<T>(path, query, abort.signal).then(
      (answer) => set({ answer, error: "" }),
      (error: Error) => {
        if (!abort.signal.aborted) set((last) => ({ answer: last.answer, error: error.message }));
      },
    );
    return () => abort.abort();
  }, [path, JSON.stringify(query), again]);
  return state;
}

/** The numbers stand beside the plots where there is room for both; the same limit is in lanes.css. */
export const BESIDE_PX = 900;
const LEGEND_PX = 440;

/** The width of the plots in an element of that width. */
export const plotWidth = (width: number): number => (width >= BESIDE_PX ? width - LEGEND_PX : width);

/** The width of an element, without the columns beside the plots. */
export function useWidth(): [(element: HTMLElement | null) => void, number] {
  const [width, set] = useState(0);
  const [element, attach] = useState<HTMLElement | null>(null);
  useEffect(() => {
    if (!element) return;
    const observer = new ResizeObserver(() => set(element.clientWidth));
    observer.observe(element);
    set(element.clientWidth);
    return () => observer.disconnect();
  }, [element]);
  return [attach, width];
}
