// One plot: lines with the band from least to greatest, or parts on top of each other.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Range } from "./api";
import { figure, tick } from "./format";

export interface Mark {
  since: number;
  until: number;
}

export interface PlotLine {
  label: string;
  /** Number of its colour, from 0. */
  colour: number;
  median: (number | null)[];
  /** Where a column holds more than one sample: least, a tenth, nine tenths and greatest. */
  band?: { min: (number | null)[]; low: (number | null)[]; high: (number | null)[]; max: (number | null)[] } | undefined;
}

export interface PlotProps {
  label: string;
  unit: string;
  at: number[];
  lines: PlotLine[];
  /** The lines are sums already, the largest first; `bound` is above all of them. */
  isStacked: boolean;
  bound?: (number | null)[] | undefined;
  range: Range;
  width: number;
  height: number;
  theme: string;
  hasTimes: boolean;
  marks: Mark[];
  onsets: number[];
  moment?: number | undefined;
  group: string;
  onCursor?: ((index: number | null) => void) | undefined;
  onZoom?: ((range: Range) => void) | undefined;
  onMoment?: ((at: number) => void) | undefined;
}

export const AXIS_PX = 66;
const TIMES_PX = 20;
/** Half of a time fits beside the last tick; `.spans` and `.pins` end there too. */
export const END_PX = 26;
/** A press that moved less is a click. */
const DRAG_PX = 4;

export const colour = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export const COLOURS = 8;
const lineColour = (index: number): string => colour(`line-${(index % COLOURS) + 1}`);

function series(line: PlotLine, isStacked: boolean): uPlot.Series[] {
  const stroke = lineColour(line.colour);
  const points = { show: false };
  const fill = isStacked ? { fill: `${stroke}a0` } : {};
  const median: uPlot.Series = { stroke, width: isStacked ? 1 : 1.4, points, ...fill };
  if (!line.band) return [median];
  const edge: uPlot.Series = { stroke: `${stroke}70`, width: 0.7, points };
  const quiet: uPlot.Series = { points, width: 0 };
  return [edge, quiet, median, quiet, edge];
}

/** Each part of a stack is filled down to the next one, so that colours do not mix. */
function parts({ lines, bound }: PlotProps): uPlot.Band[] {
  const first = bound ? 2 : 1;
  return lines.slice(1).map((_, index) => ({ series: [first + index, first + index + 1], fill: `${lineColour(lines[index]!.colour)}a0` }));
}

function bands(lines: PlotLine[]): uPlot.Band[] {
  const all: uPlot.Band[] = [];
  let at = 1;
  for (const line of lines) {
    if (!line.band) {
      at += 1;
      continue;
    }
    const stroke = lineColour(line.colour);
    all.push({ series: [at + 4, at], fill: `${stroke}26` }, { series: [at + 3, at + 1], fill: `${stroke}38` });
    at += 5;
  }
  return all;
}

function data(props: PlotProps): uPlot.AlignedData {
  const rows: (number | null)[][] = [];
  if (props.bound) rows.push(props.bound);
  for (const { band, median } of props.lines) rows.push(...(band ? [band.min, band.low, median, band.high, band.max] : [median]));
  return [props.at, ...rows];
}

function axes(props: PlotProps): uPlot.Axis[] {
  const stroke = colour("dim");
  const grid = { stroke: colour("grid"), width: 1 };
  const ticks = { show: false };
  const font = "11px system-ui, sans-serif";
  return [
    {
      stroke,
      grid,
      ticks,
      font,
      size: props.hasTimes ? TIMES_PX : 0,
      gap: 6,
      space: 70,
      values: (_, splits, __, ___, step) => splits.map((at, index) => (props.hasTimes ? tick(at, splits[index - 1], step) : "")),
    },
    {
      stroke,
      grid,
      ticks,
      font,
      size: AXIS_PX,
      gap: 6,
      space: 26,
      values: (_, splits) => splits.map((value) => (value === 0 ? "0" : figure(value, props.unit))),
    },
  ];
}

function shade(plot: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.fillStyle = colour("mark");
  for (const mark of marks) {
    const left = Math.max(plot.valToPos(mark.since, "x", true), bbox.left);
    const right = Math.min(plot.valToPos(mark.until, "x", true), bbox.left + bbox.width);
    if (right > left) ctx.fillRect(left, bbox.top, Math.max(right - left, 2), bbox.height);
  }
  ctx.restore();
}

function rule(plot: uPlot, at: number, name: string, dash: number[]): void {
  const { ctx, bbox } = plot;
  const x = plot.valToPos(at, "x", true);
  if (x < bbox.left || x > bbox.left + bbox.width) return;
  ctx.save();
  ctx.strokeStyle = colour(name);
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash(dash.map((part) => part * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(x, bbox.top);
  ctx.lineTo(x, bbox.top + bbox.height);
  ctx.stroke();
  ctx.restore();
}

function options(latest: { current: PlotProps }): uPlot.Options {
  const props = latest.current;
  const bound: uPlot.Series[] = props.bound ? [{ stroke: colour("dim"), width: 0.8, dash: [2, 2], points: { show: false } }] : [];
  return {
    width: props.width,
    height: props.height + (props.hasTimes ? TIMES_PX : 0),
    padding: [7, END_PX, props.hasTimes ? 0 : 7, 0],
    legend: { show: false },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    scales: {
      x: { time: true, range: () => [latest.current.range.since, latest.current.range.until] },
      y: { range: (_, __, max) => [0, max > 0 ? max * 1.06 : 1] },
    },
    series: [{}, ...bound, ...props.lines.flatMap((line) => series(line, props.isStacked))],
    bands: props.isStacked ? parts(props) : bands(props.lines),
    axes: axes(props),
    cursor: {
      y: false,
      points: { show: false },
      drag: { x: true, y: false, setScale: false, dist: DRAG_PX },
      sync: { key: props.group, scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
    },
    hooks: {
      drawClear: [(plot) => shade(plot, latest.current.marks)],
      draw: [
        (plot) => {
          for (const at of latest.current.onsets) rule(plot, at, "onset", [4, 3]);
          if (latest.current.moment !== undefined) rule(plot, latest.current.moment, "accent", []);
        },
      ],
      setCursor: [(plot) => latest.current.onCursor?.(plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          const { left, width } = plot.select;
          if (width < DRAG_PX) return;
          const since = plot.posToVal(left, "x");
          const until = plot.posToVal(left + width, "x");
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          latest.current.onZoom?.({ since, until });
        },
      ],
      ready: [(plot) => listenForClicks(plot, latest)],
    },
  };
}

function listenForClicks(plot: uPlot, latest: { current: PlotProps }): void {
  let pressed = 0;
  plot.over.addEventListener("mousedown", (event) => {
    pressed = event.clientX;
  });
  plot.over.addEventListener("click", (event) => {
    if (Math.abs(event.clientX - pressed) >= DRAG_PX) return;
    const left = event.clientX - plot.over.getBoundingClientRect().left;
    latest.current.onMoment?.(plot.posToVal(left, "x"));
  });
}

export function Plot(props: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const latest = useRef(props);
  latest.current = props;
  const shape = [props.theme, props.unit, props.hasTimes, props.isStacked, !!props.bound, ...props.lines.map((line) => `${line.colour}${line.band ? "b" : ""}`)].join();

  useLayoutEffect(() => {
    if (!box.current) return;
    const made = new uPlot(options(latest), data(latest.current), box.current);
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setSize({ width: props.width, height: props.height + (props.hasTimes ? TIMES_PX : 0) });
  }, [props.width, props.height]);
  useEffect(() => {
    plot.current?.setData(data(latest.current));
  }, [props.at, props.lines, props.bound, props.range.since, props.range.until]);
  useEffect(() => {
    plot.current?.redraw(false);
  }, [props.marks, props.onsets, props.moment]);

  return <div class="plot" role="img" aria-label={props.label} ref={box} />;
}
