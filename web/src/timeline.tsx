// The start page: incidents, and the lanes of the whole machine.
import { useEffect, useMemo, useState } from "preact/hooks";
import { DAY_S, json, lastDay, type Range, type Row, span } from "./api";
import { Changed, Pins, useChanges } from "./changes";
import { CompareWith } from "./compare";
import { clock, culpritText, length, moment as momentText, parseTime, percent, quantity, rangeText, seconds } from "./format";
import { Gestures } from "./gestures";
import { LatencyHeat } from "./heat";
import { Lanes } from "./lanes-view";
import { busiest, type LaneOf, lanes } from "./lanes";
import { AXIS_PX } from "./plot";
import { change, go, link, number, rangeQuery, round, type Route } from "./route";
import type { Found, FoundIncident, Shown } from "./state";
import { goLive, pan, scale, zoomTo } from "./window";

const NONE: never[] = [];

interface TimelineProps {
  route: Route;
  shown: Shown;
  found: Found | undefined;
  theme: string;
}

const PRESETS: [label: string, seconds: number][] = [
  ["5 min", 300],
  ["1 h", 3600],
  ["1 d", 86400],
];

export function Timeline({ route, shown, found, theme }: TimelineProps) {
  const { range, whole, recording } = shown;
  const at = number(route, "t");
  const devices = useDevices(shown);
  const list = useMemo(() => devices && lanes(devices.disks, devices.nics), [devices]);
  const incidents = found?.incidents ?? NONE;
  const marks = useMemo(() => incidents.map((one) => ({ since: parseTime(one.since), until: one.until ? parseTime(one.until) : whole.until })), [found, whole.until]);
  const visible = useAligned(shown);
  const changes = useChanges(shown);
  const [held, hold] = useState<Range>();
  const drawn = held ?? visible;
  const { since, until } = held ?? range;
  return (
    <>
      <Incidents found={found} shown={shown} />
      <div class="bar">
        <h2>Time line</h2>
        <span class="range">
          {rangeText(since, until)} <small>({length(until - since)})</small>
        </span>
        <span class="buttons" role="group" aria-label="Window">
          {PRESETS.map(([label, size]) => (
            <button type="button" key={label} onClick={() => zoomAround(route, shown, size)}>
              {label}
            </button>
          ))}
          <button type="button" onClick={() => zoomTo(route, shown, whole)}>
            all
          </button>
        </span>
        <span class="buttons" role="group" aria-label="Move">
          <button type="button" aria-label="Earlier" title="Earlier (←)" onClick={() => pan(route, shown, -0.5)}>
            ←
          </button>
          <button type="button" aria-label="Later" title="Later (→)" onClick={() => pan(route, shown, 0.5)}>
            →
          </button>
          <button type="button" aria-label="Zoom in" title="Zoom in (+)" onClick={() => scale(route, shown, 0.5, at)}>
            +
          </button>
          <button type="button" aria-label="Zoom out" title="Zoom out (−)" onClick={() => scale(route, shown, 2)}>
            −
          </button>
          {recording.is_live && (
            <button type="button" aria-pressed={shown.isLive} title="Follow the newest sample (L)" onClick={() => goLive(route, shown)}>
              live
            </button>
          )}
        </span>
        {!recording.is_live && <small>Nothing records into this archive.</small>}
      </div>
      <Gestures route={route} shown={shown} onHold={hold}>
        {!list && <div class="lanes coming" />}
        {list && (
          <Lanes
            above={
              <>
                <Spans incidents={incidents} marks={marks} range={drawn} />
                <Pins route={route} changes={changes.changes} range={drawn} />
              </>
            }
            lanes={list}
            range={visible}
            drawn={drawn}
            interval_s={recording.interval_s}
            theme={theme}
            group="time"
            marks={marks}
            moment={at}
            onZoom={(zoomed) => zoomTo(route, shown, zoomed)}
            onMoment={(moment) => change(route, { t: round(moment) }, true)}
          />
        )}
      </Gestures>
      {devices && <LatencyHeat route={route} shown={shown} disks={devices.disks} range={visible} theme={theme} />}
      <CompareWith shown={shown} />
      {list && <Earlier route={route} shown={shown} lanes={list} range={visible} theme={theme} />}
      <Changed found={changes} />
      {at !== undefined && <Moment route={route} at={at} shown={shown} />}
    </>
  );
}

const EARLIER: [key: string, label: string, seconds: number][] = [
  ["day", "yesterday", DAY_S],
  ["week", "last week", 7 * DAY_S],
];

interface EarlierProps {
  route: Route;
  shown: Shown;
  lanes: LaneOf[];
  range: Range;
  theme: string;
}

/** Below the time line: the same lanes at the same time of an earlier day. */
function Earlier({ route, shown, lanes, range, theme }: EarlierProps) {
  const recorded = EARLIER.filter(([, , by]) => range.until - by > shown.whole.since);
  const chosen = recorded.find(([key]) => key === route.query.get("below"));
  if (recorded.length === 0) return null;
  const by = chosen?.[2] ?? 0;
  const moved = { since: range.since - by, until: range.until - by };
  return (
    <>
      <div class="bar" role="group" aria-label="The same time below">
        <span>Below, the same time</span>
        <span class="buttons">
          {recorded.map(([key, label]) => (
            <button type="button" key={key} aria-pressed={key === chosen?.[0]} onClick={() => change(route, { below: key === chosen?.[0] ? undefined : key }, true)}>
              {label}
            </button>
          ))}
        </span>
      </div>
      {chosen && (
        <section class="earlier" aria-labelledby="earlier">
          <h3 id="earlier">
            {chosen[1]} <small>{rangeText(moved.since, moved.until)}</small>
          </h3>
          <Lanes
            lanes={lanes}
            range={moved}
            interval_s={shown.recording.interval_s}
            theme={theme}
            group="earlier"
            onZoom={(zoomed) => zoomTo(route, shown, { since: zoomed.since + by, until: zoomed.until + by })}
          />
        </section>
      )}
    </>
  );
}

function zoomAround(route: Route, shown: Shown, size: number): void {
  if (shown.isLive) return change(route, { span: size });
  const middle = number(route, "t") ?? (shown.range.since + shown.range.until) / 2;
  zoomTo(route, shown, { since: middle - size / 2, until: middle + size / 2 });
}

/** While it follows, the window moves by whole columns, so that they stay what they are. */
function useAligned(shown: Shown): Range {
  const { since, until } = shown.range;
  const step = Math.max(shown.recording.interval_s, (until - since) / 600);
  const end = shown.isLive ? Math.ceil(until / step) * step : until;
  return useMemo(() => ({ since: since + (end - until), until: end }), [since, end]);
}

interface Devices {
  disks: string[];
  nics: string[];
}

/** Undefined until it is known, so that the lanes are asked for once. */
function useDevices(shown: Shown): Devices | undefined {
  const [devices, set] = useState<Devices>();
  const { since, until } = shown.range;
  const asked = shown.isLive ? Math.floor(until / 3600) : `${since} ${until}`;
  useEffect(() => {
    const abort = new AbortController();
    const rows = (metric: string) => json<Row[]>("rows", { metric, limit: 12, ...span(lastDay(shown.range)) }, abort.signal);
    Promise.all([rows("disk.io_time"), rows("nic.rx_bytes")]).then(
      ([disks, nics]) => set({ disks: busiest(disks), nics: busiest(nics) }),
      () => {
        if (!abort.signal.aborted) set((last) => last ?? { disks: [], nics: [] });
      },
    );
    return () => abort.abort();
  }, [asked]);
  const key = JSON.stringify(devices);
  return useMemo(() => devices, [key]);
}

const incidentLink = (one: FoundIncident): string => link("incident", String(one.n), { ...rangeQuery(one.of), onset: round(parseTime(one.since)) });

function Incidents({ found, shown }: { found: Found | undefined; shown: Shown }) {
  const incidents = found?.incidents;
  const isDone = incidents && !found.missing;
  return (
    <section aria-labelledby="incidents">
      <div class="bar">
        <h2 id="incidents">Incidents</h2>
        {found && <span class="range">{rangeText(found.range.since, Math.min(found.range.until, shown.whole.until))}</span>}
      </div>
      <p role="status" class="unseen">
        {isDone && (incidents.length === 1 ? "1 incident" : `${incidents.length} incidents`)}
      </p>
      {!found && <p class="note">looking for incidents …</p>}
      {!!found?.missing && <p class="note">{found.missing} more days are being looked through …</p>}
      {found?.error && (
        <p class="error" role="alert">
          {found.error}
        </p>
      )}
      {incidents?.length === 0 && !found?.missing && !found?.error && <p class="note">None was found in this time.</p>}
      {incidents && incidents.length > 0 && (
        <ol class="incidents">
          {incidents.toReversed().map((one) => (
            <li key={one.of.since + one.n}>
              <a href={incidentLink(one)}>
                <span class="when">
                  {momentText(parseTime(one.since))}
                  <small> {one.until ? seconds(parseTime(one.until) - parseTime(one.since)) : "goes on"}</small>
                </span>
                <span class="what">
                  <strong>{one.root?.title ?? one.headline}</strong>
                  <small>{culpritText(one.culprit)}</small>
                </span>
                <span class="cost">
                  {one.lost_task_s != null && <>{quantity(one.lost_task_s, "")} task-s lost</>}
                  {one.root && <small>{one.root.unexplained ? "cause not found" : `${percent(one.root.confidence)} sure`}</small>}
                </span>
              </a>
            </li>
          ))}
        </ol>
      )}
      {!!found?.left_out && <p class="note">{found.left_out} further stretches of trouble were not looked into: choose a shorter window.</p>}
    </section>
  );
}

/** Incidents above the lanes, each as long as it lasted; those that overlap stand below each other. */
function Spans({ incidents, marks, range }: { incidents: FoundIncident[]; marks: Range[]; range: Range }) {
  const rows: number[] = [];
  const share = (at: number) => Math.max(0, Math.min(1, (at - range.since) / (range.until - range.since)));
  const placed = incidents.flatMap((one, index) => {
    const mark = marks[index]!;
    if (mark.until < range.since || mark.since > range.until) return [];
    const left = share(mark.since);
    const width = Math.max(share(mark.until) - left, 0.004);
    let row = rows.findIndex((end) => end <= left);
    if (row < 0) row = rows.length;
    rows[row] = left + Math.max(width, 0.12);
    return [{ one, left, width, row }];
  });
  if (placed.length === 0) return null;
  /** A name ends where the next incident of its line begins. */
  const room = (row: number, left: number) => Math.min(1, ...placed.filter((other) => other.row === row && other.left > left).map((other) => other.left)) - left;
  return (
    <nav class="spans" aria-label="Incidents in this window" style={{ "--rows": rows.length, marginLeft: `${AXIS_PX}px` }}>
      {placed.map(({ one, left, width, row }) => (
        <a
          key={one.of.since + one.n}
          href={incidentLink(one)}
          title={one.headline}
          style={{ "--row": row, "--from": `${left * 100}%`, "--size": `${width * 100}%`, "--room": room(row, left) * 100 }}
        >
          <span>{one.root?.title ?? one.headline}</span>
        </a>
      ))}
    </nav>
  );
}

function Moment({ route, at, shown }: { route: Route; at: number; shown: Shown }) {
  const step = shown.recording.interval_s;
  const to = (moment: number) => change(route, { t: round(moment) }, true);
  return (
    <div class="moment" role="group" aria-label="Moment">
      <strong>{momentText(at)}</strong>
      <button type="button" onClick={() => to(at - step)}>
        −{seconds(step)}
      </button>
      <button type="button" onClick={() => to(at + step)}>
        +{seconds(step)}
      </button>
      <a class="button" href={link("processes", "", { ...rangeQuery(shown.range), t: round(at) })}>
        Processes at {clock(at)}
      </a>
      <button type="button" aria-label="Forget the moment" onClick={() => change(route, { t: undefined }, true)}>
        ×
      </button>
    </div>
  );
}

export function keyOnTimeline(event: KeyboardEvent, route: Route, shown: Shown): boolean {
  const at = number(route, "t");
  switch (event.key) {
    case "ArrowLeft":
      pan(route, shown, -0.25);
      return true;
    case "ArrowRight":
      pan(route, shown, 0.25);
      return true;
    case "+":
    case "=":
      scale(route, shown, 0.5, at);
      return true;
    case "-":
      scale(route, shown, 2);
      return true;
    case "l":
    case "L":
      if (shown.recording.is_live) goLive(route, shown);
      return true;
    case ",":
    case ".":
      if (at !== undefined) change(route, { t: round(at + (event.key === "," ? -1 : 1) * shown.recording.interval_s) }, true);
      return true;
    case "p":
      go(link("processes", "", { ...rangeQuery(shown.range), t: round(at ?? shown.range.until) }));
      return true;
    default:
      return false;
  }
}
