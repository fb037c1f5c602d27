// The chain of an incident as a graph: each link below or right of what brought it about. Its links open what the list has of them.
import { useMemo, useRef, useState } from "preact/hooks";
import type { Incident, Link } from "./api";
import { clock, parseTime, seconds, words } from "./format";
import { useWidth } from "./state";

/** Of a box, and between boxes along the arrows, where the graph goes from left to right and where it goes down. */
const HEIGHT = 70;
const ACROSS = { least: 116, most: 230, gap: 58 };
const DOWN = { least: 132, most: 250, gap: 36 };
/** Between boxes beside each other. */
const GAP = 12;
/** The room of an arrow that passes boxes. */
const PASSING = 6;
const BESIDE_MAX = 6;
const HEAD = 7;
/** Where a lag stands on its arrow: nearer to the effect, where arrows of different causes are apart. */
const LAG_AT = 0.6;

interface Edge {
  from: number;
  to: number;
}

/** A link, or an arrow that passes the layer. */
interface Slot {
  link: number;
  layer: number;
  /** Its place in the layer, with 0 in the middle. */
  order: number;
  /** Where it begins across the arrows, and its size there, with what is free around it. */
  at: number;
  size: number;
  before: Slot[];
  after: Slot[];
}

export interface Drawn {
  width: number;
  height: number;
  boxes: { link: number; x: number; y: number; width: number; height: number }[];
  arrows: { path: string; head: string; lag: string; x: number; y: number }[];
}

function edgesOf(chain: Link[]): Edge[] {
  const at = new Map(chain.map((one, index) => [one.condition, index]));
  return chain.flatMap((one, to) => (one.causes ?? []).flatMap((cause) => at.get(cause) ?? []).map((from) => ({ from, to })));
}

/** The layer of each link: below all of its causes, as far up as there is room. What hangs on nothing stands beside the last ones. */
function layersOf(count: number, edges: Edge[], beside: number): number[] {
  const layers = new Array<number>(count).fill(-1);
  const filled: number[] = [];
  const isApart = (index: number) => index > 0 && edges.every((edge) => edge.from !== index && edge.to !== index);
  const waiting = [...layers.keys()].sort((a, b) => Number(isApart(a)) - Number(isApart(b)) || a - b);
  while (waiting.length > 0) {
    const isReady = (index: number) => edges.every((edge) => edge.to !== index || layers[edge.from]! >= 0);
    // In a circle nobody is the first.
    const [next] = waiting.splice(Math.max(0, waiting.findIndex(isReady)), 1) as [number];
    let layer = isApart(next) ? Math.max(1, ...layers) : Math.max(0, ...edges.filter((edge) => edge.to === next).map((edge) => layers[edge.from]! + 1));
    while ((filled[layer] ?? 0) >= beside) layer += 1;
    filled[layer] = (filled[layer] ?? 0) + 1;
    layers[next] = layer;
  }
  return layers;
}

function slotsOf(layers: number[], edges: Edge[]): { rows: Slot[][]; ways: Slot[][] } {
  const rows: Slot[][] = Array.from({ length: Math.max(...layers) + 1 }, () => []);
  const put = (link: number, layer: number): Slot => {
    const slot = { link, layer, order: 0, at: 0, size: PASSING, before: [], after: [] };
    rows[layer]!.push(slot);
    return slot;
  };
  const links = layers.map((layer, link) => put(link, layer));
  const ways = edges.map(({ from, to }) => {
    const way = [links[from]!];
    for (let layer = layers[from]! + 1; layer < layers[to]!; layer++) way.push(put(-1, layer));
    way.push(links[to]!);
    way.slice(1).forEach((slot, index) => {
      slot.before.push(way[index]!);
      way[index]!.after.push(slot);
    });
    return way;
  });
  return { rows, ways };
}

/** Each in the middle of those that it is connected with, as far as that goes, so that few arrows cross. */
function untangle(rows: Slot[][]): void {
  const place = (row: Slot[]) => row.forEach((slot, index) => (slot.order = index - (row.length - 1) / 2));
  rows.forEach(place);
  for (const [side, list] of [["before", rows], ["after", rows.toReversed()], ["before", rows]] as const) {
    for (const row of list) {
      const wish = (slot: Slot) => (slot[side].length ? slot[side].reduce((sum, one) => sum + one.order, 0) / slot[side].length : slot.order);
      row.sort((a, b) => wish(a) - wish(b));
      place(row);
    }
  }
}

const cubic = (t: number, a: number, b: number, c: number, d: number): number => (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t ** 2 * c + t ** 3 * d;

const lagOf = (cause: Link, effect: Link): string => {
  if (cause.lag_s == null || effect.lag_s == null) return "";
  const lag = effect.lag_s - cause.lag_s;
  return `${lag < 0 ? "−" : "+"}${seconds(Math.abs(lag))}`;
};

export function draw(chain: Link[], width: number): Drawn {
  const all = edgesOf(chain);
  let layers = layersOf(chain.length, all, BESIDE_MAX);
  const deepest = Math.max(...layers) + 1;
  const isAcross = (width - (deepest - 1) * ACROSS.gap) / deepest >= ACROSS.least;
  if (!isAcross) layers = layersOf(chain.length, all, Math.max(1, Math.floor(width / (DOWN.least + GAP))));
  const edges = all.filter(({ from, to }) => layers[from]! < layers[to]!);
  const { rows, ways } = slotsOf(layers, edges);
  untangle(rows);
  const room = isAcross ? (width - (rows.length - 1) * ACROSS.gap) / rows.length : Math.min(...rows.map(roomIn));
  const box = Math.floor(Math.min(isAcross ? ACROSS.most : DOWN.most, room));
  // Along the arrows.
  const step = isAcross ? box + ACROSS.gap : HEIGHT + DOWN.gap;
  const length = isAcross ? box : HEIGHT;
  for (const slot of rows.flat()) if (slot.link >= 0) slot.size = GAP + (isAcross ? HEIGHT : box);
  const sizeOf = (row: Slot[]) => row.reduce((sum, slot) => sum + slot.size, 0);
  const extent = isAcross ? Math.max(...rows.map(sizeOf)) : width;
  for (const row of rows) {
    let at = (extent - sizeOf(row)) / 2;
    for (const slot of row) {
      slot.at = at;
      at += slot.size;
    }
  }
  const total = (rows.length - 1) * step + length;
  const point = (along: number, across: number): [number, number] => (isAcross ? [along, across] : [across, along]);
  const boxes = rows.flat().flatMap((slot) => {
    if (slot.link < 0) return [];
    const [x, y] = point(slot.layer * step, slot.at + GAP / 2);
    return [{ link: slot.link, x, y, width: box, height: HEIGHT }];
  });
  const text = (along: number, across: number) => point(along, across).map((value) => value.toFixed(1)).join(" ");
  const middle = (slot: Slot) => slot.at + slot.size / 2;
  const arrows = ways.map((way) => {
    let path = "";
    let [x, y] = [0, 0];
    way.slice(1).forEach((slot, index) => {
      const before = way[index]!;
      const [from, to] = [before.layer * step + length, slot.layer * step - (slot.link < 0 ? 0 : HEAD)];
      const half = (from + to) / 2;
      path += `${index === 0 ? "M" : "L"}${text(from, middle(before))}C${text(half, middle(before))} ${text(half, middle(slot))} ${text(to, middle(slot))}`;
      [x, y] = point(cubic(LAG_AT, from, half, half, to), cubic(LAG_AT, middle(before), middle(before), middle(slot), middle(slot)));
    });
    const [first, last] = [way[0]!, way.at(-1)!];
    const head = `M${text(last.layer * step, middle(last))}${isAcross ? `l-${HEAD} -4v8z` : `l-4 -${HEAD}h8z`}`;
    return { path, head, lag: lagOf(chain[first.link]!, chain[last.link]!), x, y };
  });
  return { width: isAcross ? total : width, height: isAcross ? extent : total, boxes, arrows };

  function roomIn(row: Slot[]): number {
    const passing = row.filter((slot) => slot.link < 0).length;
    return row.length > passing ? (width - passing * PASSING) / (row.length - passing) - GAP : Infinity;
  }
}

const WAYS: Record<string, [x: number, y: number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

interface GraphProps {
  incident: Incident;
  open: number | null;
  onOpen: (link: number) => void;
}

export function Graph({ incident, open, onOpen }: GraphProps) {
  const { chain, symptoms } = incident;
  const [attach, width] = useWidth();
  const [stop, setStop] = useState(0);
  const buttons = useRef<(HTMLButtonElement | null)[]>([]);
  const drawn = useMemo(() => (width > 0 && chain.length > 1 ? draw(chain, width) : undefined), [chain, width]);
  if (chain.length < 2) return null;
  const pressed = (event: KeyboardEvent) => {
    const way = WAYS[event.key];
    const here = drawn?.boxes.find((box) => box.link === stop);
    if (!way || !here) return;
    event.preventDefault();
    const [x, y] = way;
    const ahead = (box: typeof here) => (box.x - here.x) * x + (box.y - here.y) * y;
    const aside = (box: typeof here) => Math.abs((box.x - here.x) * y) + Math.abs((box.y - here.y) * x);
    const next = drawn?.boxes.filter((box) => ahead(box) > 0).sort((a, b) => ahead(a) + 2 * aside(a) - ahead(b) - 2 * aside(b))[0];
    if (next) buttons.current[next.link]?.focus();
  };
  return (
    <>
      <div class="graph" ref={attach}>
        {drawn && (
          <svg width={drawn.width} height={drawn.height} role="group" aria-label="Graph of causes and effects; the list that follows has the same" onKeyDown={pressed}>
            {drawn.arrows.map(({ path, head }, index) => (
              <g key={index} aria-hidden="true">
                <path d={path} />
                <path d={head} class="head" />
              </g>
            ))}
            {drawn.arrows.map(({ lag, x, y }, index) => (
              <text key={index} x={x} y={y + 4} aria-hidden="true">
                {lag}
              </text>
            ))}
            {drawn.boxes
              .toSorted((a, b) => a.link - b.link)
              .map(({ link, ...place }) => (
                <foreignObject key={link} {...place}>
                  <LinkBox
                    of={chain[link]!}
                    part={link === 0 ? "root" : symptoms.includes(chain[link]!.condition) ? "symptom" : ""}
                    isOpen={open === link}
                    isStop={stop === link}
                    attach={(button) => (buttons.current[link] = button)}
                    onFocus={() => setStop(link)}
                    onOpen={() => onOpen(link)}
                  />
                </foreignObject>
              ))}
          </svg>
        )}
      </div>
      <p class="note">Thick frame: the root; dashed frame: noticed. At an arrow: from the onset of the cause to that of the effect.</p>
    </>
  );
}

interface LinkBoxProps {
  of: Link;
  part: "root" | "symptom" | "";
  isOpen: boolean;
  isStop: boolean;
  attach: (button: HTMLButtonElement | null) => void;
  onFocus: () => void;
  onOpen: () => void;
}

const PARTS = { root: "root ", symptom: "noticed ", "": "" };

function LinkBox({ of, part, isOpen, isStop, attach, onFocus, onOpen }: LinkBoxProps) {
  const [name, when] = [words(of.condition), `${PARTS[part]}${clock(parseTime(of.onset))}`];
  const causes = of.causes?.length ? `, brought about by ${of.causes.map(words).join(", ")}` : "";
  return (
    <button
      type="button"
      ref={attach}
      class={part}
      title={of.statement}
      aria-label={`${name} ${when}${causes}`}
      aria-expanded={isOpen}
      tabIndex={isStop ? 0 : -1}
      onFocus={onFocus}
      onClick={onOpen}
    >
      <strong>{name}</strong> <small>{when}</small>
    </button>
  );
}
