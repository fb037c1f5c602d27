// The interface /api/v1 of `mitra serve`: its answers as types, and the requests.

export interface Recording {
  host: string;
  since: string;
  until: string;
  interval_s: number;
  is_live: boolean;
  version: string;
}

export interface Culprit {
  process?: string;
  pid?: number;
  cgroup?: string;
  [key: string]: string | number | undefined;
}

export interface IncidentLine {
  n: number;
  since: string;
  until: string | null;
  lost_task_s: number | null;
  root: { id: string; title: string; confidence: number; unexplained: boolean } | null;
  culprit: Culprit | null;
  headline: string;
}

export interface Finding {
  condition: string;
  statement: string;
  remarks?: string[];
  culprit?: Culprit;
  limit_in_seconds?: [number, number];
  remedies?: Remedy[];
}

export interface IncidentList {
  incidents: IncidentLine[];
  findings: Finding[];
  left_out?: number;
}

export interface Evidence {
  metric: string;
  entity: string;
  before?: number | null;
  during?: number | null;
  peak?: number | null;
  unit: string;
}

export interface Link {
  condition: string;
  onset: string | null;
  lag_s: number | null;
  /** Ids of the links that brought it about. */
  causes?: string[];
  statement: string;
  remarks?: string[];
  evidence: Evidence[];
}

export interface Root {
  condition: string;
  confidence: number;
  unexplained?: boolean;
  share?: number | null;
  culprit?: Culprit | null;
  statement: string;
  remarks?: string[];
}

export interface Remedy {
  do: string;
  command?: string;
  verify?: string;
  risk?: string;
}

export interface Incident {
  onset: string | null;
  end: string | null;
  lost_task_seconds?: number | null;
  client_wait_seconds?: number | null;
  symptoms: string[];
  root_cause: Root | null;
  other_roots: Root[];
  chain: Link[];
  ruled_out: { condition: string; because: string }[];
  unknown: { condition: string; needs?: string; command?: string }[];
  changes?: { at?: string | null; kind: string; name: string; from?: string; to?: string }[];
  remedies: Remedy[];
  next: { measure: string; command?: string }[];
}

export interface Report {
  window: { since: string; until: string };
  incidents: Incident[];
  healthy?: string[];
  recorder?: { unavailable?: { source: string; why: string }[] };
}

export interface Process {
  pid: number;
  ppid: number;
  comm: string;
  cmdline?: string | null;
  cgroup?: string | null;
  cgroup_name?: string | null;
  state?: string | null;
  /** Kernel stacks of threads in D state, innermost first. */
  waits_in?: string[];
  row?: string;
  /** Only of one that is asked for alone. */
  tasks?: Task[];
  [column: string]: string | number | null | undefined | string[] | Task[];
}

export interface Task {
  row: string;
  tid: number | null;
  comm: string | null;
  state: string;
  waits_in: string | null;
  cpu: number | null;
  run_delay: number | null;
  blkio_delay: number | null;
}

/** Processes of one name and parent that ended. */
export interface Ended {
  comm: string;
  ppid: number | null;
  last_pid: number | null;
  count: number;
  failed: number | null;
  cpu: number | null;
  run_delay: number | null;
  read: number | null;
  written: number | null;
}

/** A cgroup with those below it. */
export interface Cgroup {
  cgroup: string;
  cgroup_name: string | null;
  [column: string]: string | number | null;
}

export interface Row {
  row: string;
  label: string;
  mean: number | null;
  max: number | null;
}

/** Five quantiles of each column of one series. NaN: nothing was recorded in that column. */
export interface Series {
  min: Float32Array;
  low: Float32Array;
  median: Float32Array;
  high: Float32Array;
  max: Float32Array;
}

export interface Columns {
  /** Start of the first column and width of a column, in seconds. */
  start: number;
  step: number;
  count: number;
  series: Series[];
}

/** What to ask for: a metric, and the row of an entity that has several. */
export interface Wanted {
  metric: string;
  row?: string;
}

export interface Range {
  since: number;
  until: number;
}

const MAGIC = 0x3154524d;
const SERIES_AT_ONCE = 32;
const MAX_COLUMNS = 4096;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

type Query = Record<string, string | number | undefined>;

export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined) search.append(key, String(value));
  const text = search.toString();
  return `api/v1/${path}${text ? `?${text}` : ""}`;
}

/** The server answers so when it has enough to do. */
const BUSY = [429, 503];
const BUSY_TRIES = 5;
const BUSY_WAIT_MS = 1000;

async function get(url: string, signal?: AbortSignal): Promise<Response> {
  let response = await fetch(url, { signal: signal ?? null });
  for (let tries = 1; BUSY.includes(response.status) && tries < BUSY_TRIES; tries++) {
    await new Promise((done) => window.setTimeout(done, BUSY_WAIT_MS));
    response = await fetch(url, { signal: signal ?? null });
  }
  return checked(response);
}

/** What was not answered as it was asked is an error with the server's own words. */
async function checked(response: Response): Promise<Response> {
  if (response.ok) return response;
  if (response.status === 401) throw new ApiError(401, "This browser does not have the token of the server. Open the address that mitra serve printed when it started.");
  const text = await response.text();
  let message = text;
  try {
    message = (JSON.parse(text) as { error: { message: string } }).error.message;
  } catch {
    // Whatever stands between the page and the server answers in its own words.
  }
  throw new ApiError(response.status, message || `the server answered ${response.status}`);
}

export async function json<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await get(address(path, query), signal)).json() as Promise<T>;
}

/** Asks for something to be done. It is not tried again. */
export async function post(path: string, body: unknown): Promise<void> {
  await checked(await fetch(address(path), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));
}

/** The row of the first thread of a process that is there at a moment. */
export async function rowOfPid(pid: number | string, at: number, signal: AbortSignal): Promise<string | undefined> {
  const { processes } = await json<{ processes: Process[] }>("processes", { at: stamp(at), pid }, signal);
  return processes[0]?.row;
}

/** A time as the server wants it: seconds with milliseconds. */
export const stamp = (seconds: number): string => seconds.toFixed(3);

/** Rows, services and reports are of a day at most. */
export const DAY_S = 86400;

/** The end of a range, as far as the server looks at once. */
export const lastDay = (range: Range): Range => ({ since: Math.max(range.since, range.until - DAY_S), until: range.until });

export const span = (range: Range): Query => ({ since: stamp(range.since), until: stamp(range.until) });

/** With `isProcess` the row of a metric of tasks stands for its whole process. */
export async function series(wanted: Wanted[], range: Range, columns: number, signal?: AbortSignal, isProcess = false): Promise<Columns> {
  const parts: Promise<Columns>[] = [];
  for (let at = 0; at < wanted.length; at += SERIES_AT_ONCE) {
    parts.push(seriesPart(wanted.slice(at, at + SERIES_AT_ONCE), range, columns, signal, isProcess));
  }
  const all = await Promise.all(parts);
  const first = all[0];
  if (!first) return { start: range.since, step: 1, count: 0, series: [] };
  return { ...first, series: all.flatMap((part) => part.series) };
}

async function seriesPart(wanted: Wanted[], range: Range, columns: number, signal: AbortSignal | undefined, isProcess: boolean): Promise<Columns> {
  const search = new URLSearchParams();
  for (const one of wanted) {
    search.append("metric", one.metric);
    search.append("row", one.row ?? "");
  }
  search.append("since", stamp(range.since));
  search.append("until", stamp(range.until));
  if (isProcess) search.append("process", "true");
  search.append("columns", String(Math.max(1, Math.min(MAX_COLUMNS, Math.round(columns)))));
  return decode(await (await get(`api/v1/series?${search}`, signal)).arrayBuffer());
}

/** Little endian, as all machines are that browsers run on; the layout is that of `/api/v1/series`. */
export function decode(bytes: ArrayBuffer): Columns {
  const head = new DataView(bytes);
  if (bytes.byteLength < 32 || head.getUint32(0, true) !== MAGIC) throw new Error("the answer holds no series");
  const rows = head.getUint32(4, true);
  const count = head.getUint32(8, true);
  if (bytes.byteLength < 32 + rows * count * 20) throw new Error("the answer is cut short");
  const series: Series[] = [];
  for (let row = 0; row < rows; row++) {
    const part = (index: number) => new Float32Array(bytes, 32 + (row * 5 + index) * count * 4, count);
    series.push({ min: part(0), low: part(1), median: part(2), high: part(3), max: part(4) });
  }
  return { start: head.getFloat64(16, true), step: head.getFloat64(24, true), count, series };
}

interface Follower {
  sample: () => void;
  incidents: () => void;
  /** It broke. */
  lost: () => void;
  /** It is there, or there again. */
  open: () => void;
  /** Nobody looks, so that nothing is heard until somebody does. */
  hidden: () => void;
}

/** Calls on each event of the stream, while the page is seen: a browser has six connections for all of its tabs, and a phone one battery. */
export function follow(on: Follower): () => void {
  let source: EventSource | undefined;
  let timer: number | undefined;
  let wait_ms = 500;
  const connect = () => {
    source = new EventSource("api/v1/stream");
    source.addEventListener("open", () => {
      wait_ms = 500;
      on.open();
    });
    source.addEventListener("sample", on.sample);
    source.addEventListener("incidents", on.incidents);
    source.addEventListener("error", () => {
      source?.close();
      on.lost();
      timer = window.setTimeout(connect, wait_ms);
      wait_ms = Math.min(wait_ms * 2, 8000);
    });
  };
  const stop = () => {
    source?.close();
    window.clearTimeout(timer);
  };
  const looked = () => {
    stop();
    if (document.visibilityState === "visible") connect();
    else on.hidden();
  };
  looked();
  document.addEventListener("visibilitychange", looked);
  return () => {
    document.removeEventListener("visibilitychange", looked);
    stop();
  };
}
