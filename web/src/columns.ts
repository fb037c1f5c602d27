// From the columns of the server to what is drawn.
import { useEffect, useRef, useState } from "preact/hooks";
import { type Columns, type Range, type Series, series, type Wanted } from "./api";

export type Values = (number | null)[];

/** The moments that are drawn, and which column each comes from. */
export interface Axis {
  at: number[];
  from: number[];
}

/** Columns as narrow as the interval are empty now and then without a sample missing. A longer stretch is a gap. */
const GAP_INTERVALS = 2.5;

export function axis(columns: Columns, interval_s: number): Axis {
  const isEmpty = (column: number) => columns.series.every((one) => Number.isNaN(one.max[column]!));
  const at: number[] = [];
  const from: number[] = [];
  let column = 0;
  while (column < columns.count) {
    let end = column;
    while (end < columns.count && isEmpty(end)) end += 1;
    const isGap = (end - column) * columns.step > GAP_INTERVALS * interval_s;
    for (; column < end; column++) if (isGap) push(column);
    if (column < columns.count) push(column++);
  }
  return { at, from };

  function push(index: number): void {
    at.push(columns.start + (index + 0.5) * columns.step);
    from.push(index);
  }
}

export function values(of: Float32Array, axis: Axis): Values {
  return axis.from.map((index) => {
    const value = of[index]!;
    return Number.isNaN(value) ? null : value;
  });
}

/** Sums over the first series, the first two, and so on. A part that was not recorded adds nothing. */
export function stack(parts: Values[]): Values[] {
  let below: Values | undefined;
  return parts.map((part) => {
    const last = below;
    below = part.map((value, index) => (value === null && last?.[index] == null ? null : (value ?? 0) + (last?.[index] ?? 0)));
    return below;
  });
}

export interface Summary {
  min: number;
  median: number;
  max: number;
}

/** Least, middle and greatest of a series: the first and last of all samples, the middle one of the columns' medians. */
export function summary(one: Series): Summary | undefined {
  const medians = [...one.median].filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  if (medians.length === 0) return undefined;
  let min = Infinity;
  let max = -Infinity;
  for (const value of one.min) if (value < min) min = value;
  for (const value of one.max) if (value > max) max = value;
  return { min, median: medians[Math.floor((medians.length - 1) / 2)]!, max };
}

/** Columns of a window: one for each pixel and a half, and no more than there are samples. */
export function columnCount(range: Range, width_px: number, interval_s: number): number {
  const samples = Math.ceil((range.until - range.since) / Math.max(interval_s, 0.001));
  return Math.max(2, Math.min(Math.ceil(width_px / 1.5), samples, 4096));
}

export interface Loaded {
  columns: Columns | undefined;
  error: string;
  isLoading: boolean;
}

/** Asks for series, again whenever what is asked for changes; the last answer stays until the next is there. */
export function useColumns(wanted: Wanted[], range: Range, count: number, isProcess = false): Loaded {
  const [state, set] = useState<Loaded & { wanted: string }>({ columns: undefined, error: "", isLoading: true, wanted: "" });
  const key = [isProcess, ...wanted.map((one) => `${one.metric}\u0000${one.row ?? ""}`)].join("\u0001");
  const running = useRef<AbortController>();
  useEffect(() => {
    running.current?.abort();
    if (wanted.length === 0) return;
    const abort = new AbortController();
    running.current = abort;
    set((last) => ({ ...last, isLoading: true }));
    series(wanted, range, count, abort.signal, isProcess).then(
      (columns) => {
        if (!abort.signal.aborted) set({ columns, error: "", isLoading: false, wanted: key });
      },
      (error: Error) => {
        if (!abort.signal.aborted) set((last) => ({ ...last, error: error.message, isLoading: false }));
      },
    );
  }, [key, range.since, range.until, count]);
  useEffect(() => () => running.current?.abort(), []);
  return state.wanted === key ? state : { ...state, columns: undefined };
}
