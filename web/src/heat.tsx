// Response times of a disk as a heat map: a row for each bucket, the fastest below, darker where more requests were.
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { Columns, Range, Wanted } from "./api";
import { columnCount, useColumns } from "./columns";
import { quantity } from "./format";
import { AXIS_PX, colour, END_PX } from "./plot";
import { change, round, type Route } from "./route";
import { plotWidth, type Shown, useWidth } from "./state";

/** The upper bounds of the buckets, as metrics are named; what takes longer than the last one is in `inf`. */
const BOUNDS = ["16us", "32us", "64us", "128us", "256us", "512us", "1ms", "2ms", "4ms", "8ms", "16ms", "32ms", "64ms", "128ms", "256ms", "512ms", "1s", "2s", "4s", "8s"];
/** Those that stand beside the plot. */
const NAMED = ["16us", "512us", "16ms", "512ms", "8s"];
const BUCKETS = [...BOUNDS.map((bound) => `le_${bound}`), "inf"];
const DIRECTIONS = ["read", "write"];
const NONE: Wanted[] = [];
const ROW_PX = 8;
const HEIGHT_PX = BUCKETS.length * ROW_PX;
/** A narrower column nobody sees. */
const COLUMN_PX = 4;
/** The least that is drawn, so that a single request is seen beside a million. */
const FAINTEST = 0.2;

const words = (bound: string): string => bound.replace(/(\d+)([a-z]+)/, "$1 $2").replace("us", "µs");

interface Heat {
  /** The greatest rate of each column, one list for each bucket. */
  rows: Float32Array[];
  isRecorded: boolean[];
  most: number;
  /** The last bucket that has a request. */
  slowest: number;
}

function heat(columns: Columns): Heat | undefined {
  const isRecorded = Array.from({ length: columns.count }, (_, column) => columns.series.some((one) => !Number.isNaN(one.max[column]!)));
  if (!isRecorded.includes(true)) return undefined;
  let [most, slowest] = [0, -1];
  const rows = BUCKETS.map((_, bucket) => {
    const both = columns.series.slice(bucket * DIRECTIONS.length, (bucket + 1) * DIRECTIONS.length);
    const row = new Float32Array(columns.count).map((_, column) => both.reduce((sum, one) => sum + (one.max[column] || 0), 0));
    const greatest = row.reduce((a, b) => Math.max(a, b), 0);
    most = Math.max(most, greatest);
    if (greatest > 0) slowest = bucket;
    return row;
  });
  return { rows, isRecorded, most, slowest };
}

function draw(canvas: HTMLCanvasElement, { rows, isRecorded, most }: Heat): void {
  const ctx = canvas.getContext("2d");
  if (!ctx) return;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
  canvas.height = Math.round(HEIGHT_PX * devicePixelRatio);
  const [width, height] = [canvas.width / isRecorded.length, canvas.height / rows.length];
  const left = (column: number) => Math.round(column * width);
  ctx.fillStyle = colour("grid");
  isRecorded.forEach((is, column) => {
    if (is) ctx.fillRect(left(column), 0, left(column + 1) - left(column), canvas.height);
  });
  ctx.fillStyle = colour("line-2");
  rows.forEach((row, bucket) => {
    const top = Math.round(canvas.height - (bucket + 1) * height);
    row.forEach((rate, column) => {
      if (!(rate > 0)) return;
      ctx.globalAlpha = FAINTEST + (1 - FAINTEST) * (Math.log1p(rate) / Math.log1p(most));
      ctx.fillRect(left(column), top, left(column + 1) - left(column), Math.ceil(height));
    });
  });
}

interface HeatProps {
  route: Route;
  shown: Shown;
  disks: string[];
  /** What the lanes above show. */
  range: Range;
  theme: string;
}

export function LatencyHeat({ route, shown, disks, range, theme }: HeatProps) {
  const [box, width] = useWidth();
  const chosen = route.query.get("heat") ?? "";
  const disk = disks.includes(chosen) ? chosen : "";
  if (disks.length === 0) return null;
  return (
    <section class="heat" aria-label="Response times of disks" ref={box}>
      <div class="bar" role="group" aria-label="Heat map of response times">
        <span>Response times of</span>
        <span class="buttons">
          {disks.map((name) => (
            <button type="button" key={name} aria-pressed={name === disk} onClick={() => change(route, { heat: name === disk ? undefined : name }, true)}>
              {name}
            </button>
          ))}
        </span>
      </div>
      {disk && width > 0 && <HeatMap key={disk} {...{ route, shown, disk, range, theme }} width={plotWidth(width)} />}
    </section>
  );
}

function HeatMap({ route, shown, disk, range, theme, width }: { route: Route; shown: Shown; disk: string; range: Range; theme: string; width: number }) {
  const wanted = useMemo(() => BUCKETS.flatMap((bucket) => DIRECTIONS.map((direction): Wanted => ({ metric: `disk.${direction}_latency_${bucket}`, row: disk }))), [disk]);
  const count = columnCount(range, (width * 1.5) / COLUMN_PX, shown.recording.interval_s);
  const { columns, error, isLoading } = useColumns(width ? wanted : NONE, range, count);
  const found = useMemo(() => columns && heat(columns), [columns]);
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => {
    if (canvas.current && found) draw(canvas.current, found);
  }, [found, theme, width]);
  if (error) {
    return (
      <p class="error" role="alert">
        {error}
      </p>
    );
  }
  if (columns && !found) return <p class="note">How long requests of {disk} took is not recorded in this window.</p>;
  const slowest = found && (found.slowest < 0 ? "No request was seen." : found.slowest < BOUNDS.length ? `The slowest took up to ${words(BOUNDS[found.slowest]!)}.` : "The slowest took more than 8 s.");
  const told = found ? `${slowest} Darker: more reads and writes, at most ${quantity(found.most, "1/s")} in one bucket. Time in a queue of the kernel is not in it.` : "reading …";
  const press = (event: MouseEvent) => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    change(route, { t: round(range.since + ((event.clientX - box.left) / box.width) * (range.until - range.since)) }, true);
  };
  return (
    <div aria-busy={isLoading}>
      <div class="heat-plot" style={{ "--axis": `${AXIS_PX}px`, "--end": `${END_PX}px`, width: `${width}px`, height: `${HEIGHT_PX}px` }}>
        {NAMED.map((bound) => (
          <small key={bound} style={{ "--from": `${BOUNDS.indexOf(bound) * ROW_PX}px` }}>
            {words(bound)}
          </small>
        ))}
        <canvas ref={canvas} role="img" aria-label={`Response times of ${disk}. ${told}`} onClick={press} />
      </div>
      <p class="note">{told}</p>
    </div>
  );
}
