// A lane of the time line: its title, the plot, and the same in numbers.
import { useMemo, useState } from "preact/hooks";
import type { Columns, Range, Series } from "./api";
import { type Axis, axis, stack, type Summary, summary, type Values, values } from "./columns";
import { figure } from "./format";
import type { LaneOf, LineOf } from "./lanes";
import { COLOURS, type Mark, Plot, type PlotLine } from "./plot";

export interface Shared {
  range: Range;
  interval_s: number;
  width: number;
  theme: string;
  group: string;
  marks: Mark[];
  onsets: number[];
  moment?: number | undefined;
  onZoom?: ((range: Range) => void) | undefined;
  onMoment?: ((at: number) => void) | undefined;
}

interface Shown {
  line: LineOf;
  colour: number;
  series: Series;
  summary: Summary;
}

const LANE_PX = 92;

/** Lines with samples; those that were 0 throughout are named and not drawn. */
function sort(lane: LaneOf, all: Series[]): { shown: Shown[]; idle: string[]; missing: string[] } {
  const shown: Shown[] = [];
  const idle: string[] = [];
  const missing: string[] = [];
  lane.lines.forEach((line, index) => {
    const series = all[index];
    const sum = series && summary(series);
    if (!series || !sum) missing.push(line.label);
    else if (sum.max === 0) idle.push(line.label);
    else shown.push({ line, colour: index, series, summary: sum });
  });
  return { shown, idle, missing };
}

function drawn(shown: Shown[], axis: Axis, isStacked: boolean, hasBands: boolean): { lines: PlotLine[]; bound: Values | undefined } {
  if (!isStacked) {
    const lines = shown.map(({ line, colour, series }) => ({
      label: line.label,
      colour,
      median: values(series.median, axis),
      band: hasBands
        ? { min: values(series.min, axis), low: values(series.low, axis), high: values(series.high, axis), max: values(series.max, axis) }
        : undefined,
    }));
    return { lines, bound: undefined };
  }
  const sums = stack(shown.map(({ series }) => values(series.median, axis)));
  const lines = shown.map(({ line, colour }, index) => ({ label: line.label, colour, median: sums[index]! })).reverse();
  const bound = hasBands ? stack(shown.map(({ series }) => values(series.max, axis))).at(-1) : undefined;
  return { lines, bound };
}

function nearest(at: number[], moment: number | undefined): number | null {
  if (moment === undefined || at.length === 0) return null;
  let best = 0;
  for (let index = 1; index < at.length; index++) if (Math.abs(at[index]! - moment) < Math.abs(at[best]! - moment)) best = index;
  return best;
}

interface LaneProps extends Shared {
  lane: LaneOf;
  columns: Columns | undefined;
  hasTimes: boolean;
}

export function Lane({ lane, columns, hasTimes, ...shared }: LaneProps) {
  const [hidden, setHidden] = useState<Set<string>>(new Set());
  const [cursor, setCursor] = useState<number | null>(null);
  const { shown, idle, missing } = useMemo(() => sort(lane, columns?.series ?? []), [lane, columns]);
  const at = useMemo(() => (columns ? axis(columns, shared.interval_s) : { at: [], from: [] }), [columns, shared.interval_s]);
  const hasBands = (columns?.step ?? 0) > shared.interval_s * 1.01;
  const { lines, bound } = useMemo(
    () => drawn(shown.filter((one) => !hidden.has(one.line.label)), at, !!lane.stacked, hasBands),
    [shown, hidden, at, hasBands],
  );
  const read = cursor ?? nearest(at.at, shared.moment);
  const toggle = (label: string) => {
    const next = new Set(hidden);
    if (!next.delete(label)) next.add(label);
    setHidden(next);
  };
  // The same lane may stand on the page twice, below of an earlier day.
  const name = shared.group === "earlier" ? `${lane.title}, earlier` : lane.title;
  const heading = <Heading lane={lane} />;
  if (columns && shown.length === 0) {
    return (
      <section class="lane empty" aria-label={name}>
        {heading}
        <p class="note">{idle.length ? "0 throughout" : "not recorded in this window"}</p>
      </section>
    );
  }
  return (
    <section class="lane" aria-label={name}>
      {heading}
      <div class="lane-plot">
        <Plot
          {...shared}
          label={`${lane.title}. ${lane.about} The numbers are in the table that follows.`}
          unit={lane.unit}
          at={at.at}
          lines={lines}
          bound={bound}
          isStacked={!!lane.stacked}
          height={LANE_PX}
          hasTimes={hasTimes}
          onCursor={setCursor}
        />
      </div>
      <Legend lane={lane} shown={shown} hidden={hidden} read={read === null ? undefined : at.from[read]} toggle={toggle} idle={idle} missing={missing} hasBands={hasBands} />
    </section>
  );
}

/** The title, and when it is opened what is drawn. */
function Heading({ lane }: { lane: LaneOf }) {
  return (
    <details class="about">
      <summary>
        <h3>
          {lane.title} <small>{lane.unit === "share" ? "% of time" : lane.unit}</small>
        </h3>
      </summary>
      <p class="note">{lane.about} The median is the middle one of the medians of all columns.</p>
      <ul class="note">
        {lane.lines.map(({ label, metric, row }) => (
          <li key={label}>
            {label}: <code>{metric}</code> {row}
          </li>
        ))}
      </ul>
    </details>
  );
}

interface LegendProps {
  lane: LaneOf;
  shown: Shown[];
  hidden: Set<string>;
  read: number | undefined;
  toggle: (label: string) => void;
  idle: string[];
  missing: string[];
  hasBands: boolean;
}

function Legend({ lane, shown, hidden, read, toggle, idle, missing, hasBands }: LegendProps) {
  return (
    <div class="legend">
      {shown.length > 0 && (
        <table class={read === undefined ? "unread" : ""}>
          <caption class="unseen">{lane.title}: least, median and greatest in the window</caption>
          <thead>
            <tr>
              <th scope="col">
                <span class="unseen">Line</span>
              </th>
              <th scope="col">here</th>
              <th scope="col">min</th>
              <th scope="col">median</th>
              <th scope="col">max</th>
            </tr>
          </thead>
          <tbody>
            {shown.map(({ line, colour, series, summary }) => (
              <tr key={line.label}>
                <th scope="row">
                  <button type="button" class="key" aria-pressed={!hidden.has(line.label)} onClick={() => toggle(line.label)} title={`${line.metric}${line.row ? ` of ${line.row}` : ""}: show or hide`}>
                    <i class={`swatch line-${(colour % COLOURS) + 1}`} />
                    {line.label}
                  </button>
                </th>
                <td>{read === undefined ? "" : figure(series.median[read], lane.unit)}</td>
                <td>{figure(summary.min, lane.unit)}</td>
                <td>{figure(summary.median, lane.unit)}</td>
                <td>{figure(summary.max, lane.unit)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {idle.length > 0 && shown.length > 0 && <p class="note">0: {idle.join(", ")}</p>}
      {missing.length > 0 && <p class="note">not recorded: {missing.join(", ")}</p>}
      {lane.stacked && hasBands && shown.length > 0 && <p class="note">dashed: sum of the greatest values of each column</p>}
    </div>
  );
}
