// Lanes below each other, with one time axis, one cursor and one selection.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Columns, Range, Wanted } from "./api";
import { columnCount, useColumns } from "./columns";
import { Lane } from "./lane";
import type { LaneOf } from "./lanes";
import type { Mark } from "./plot";
import { BESIDE_PX, plotWidth, useWidth } from "./state";

interface LanesProps {
  above?: ComponentChildren;
  lanes: LaneOf[];
  range: Range;
  /** What is drawn while the range is moved, and nothing asked for yet. */
  drawn?: Range;
  interval_s: number;
  theme: string;
  group: string;
  /** Rows of tasks stand for their whole processes. */
  isProcess?: boolean;
  marks?: Mark[];
  onsets?: number[];
  moment?: number | undefined;
  onZoom?: (range: Range) => void;
  onMoment?: (at: number) => void;
}

const NONE: never[] = [];

export function Lanes({ above, lanes, range, drawn = range, interval_s, theme, group, isProcess = false, marks = NONE, onsets = NONE, moment, onZoom, onMoment }: LanesProps) {
  const [box, width] = useWidth();
  const drawn_px = plotWidth(width);
  const wanted: Wanted[] = useMemo(() => lanes.flatMap((lane) => lane.lines), [lanes]);
  const { columns, error, isLoading } = useColumns(width ? wanted : NONE, range, columnCount(range, drawn_px, interval_s), isProcess);
  const parts = useMemo(() => split(lanes, columns), [lanes, columns]);
  return (
    <div class={`lanes ${width >= BESIDE_PX ? "beside" : width > 0 ? "" : "coming"}`} ref={box} aria-busy={isLoading}>
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {above}
      {width > 0 &&
        lanes.map((lane, index) => (
          <Lane
            key={lane.id}
            lane={lane}
            columns={parts[index]}
            hasTimes={index === 0 || index === lanes.length - 1 || width < BESIDE_PX}
            range={drawn}
            {...{ interval_s, theme, group, marks, onsets, moment, onZoom, onMoment }}
            width={drawn_px}
          />
        ))}
    </div>
  );
}

function split(lanes: LaneOf[], columns: Columns | undefined): (Columns | undefined)[] {
  let at = 0;
  return lanes.map((lane) => {
    const from = at;
    at += lane.lines.length;
    return columns && { ...columns, series: columns.series.slice(from, at) };
  });
}
