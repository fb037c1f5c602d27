// Folded stacks as a tree of frames, and which boxes a flame graph draws of it.

/** `thread;root;…;leaf`, its weight, and a second weight where the capture has one. */
export type Folded = [stack: string, weight: number, beside?: number];

export interface Frame {
  name: string;
  depth: number;
  parent: Frame | undefined;
  /** In the order of their names, so that two graphs of the same program look alike. */
  children: Frame[];
  weight: number;
  /** What the frame itself weighs, without those that it called. */
  own: number;
  /** The weight on the other side of a differential graph. */
  other: number;
  ownOther: number;
}

/** More than the kernel records. */
const DEPTH_MAX = 300;
/** Narrower boxes are invisible. */
const NARROWEST_PX = 0.6;

const frame = (name: string, parent: Frame | undefined): Frame => ({
  name,
  depth: parent ? parent.depth + 1 : 0,
  parent,
  children: [],
  weight: 0,
  own: 0,
  other: 0,
  ownOther: 0,
});

/** One side: its stacks, which of the weights counts, and what it is multiplied by. */
export interface Side {
  stacks: Folded[];
  second?: boolean;
  factor?: number;
}

/** All stacks as one tree. With another side, each frame has the weight of both. */
export function tree(side: Side, other?: Side): Frame {
  const root = frame("all", undefined);
  const known = new Map<Frame, Map<string, Frame>>();
  const add = ({ stacks, second, factor = 1 }: Side, put: (to: Frame, weight: number, isLeaf: boolean) => void) => {
    for (const [stack, first, beside] of stacks) {
      const weight = (second ? (beside ?? 0) : first) * factor;
      if (!(weight > 0)) continue;
      let at = root;
      const names = stack.split(";").slice(0, DEPTH_MAX);
      put(at, weight, false);
      names.forEach((name, index) => {
        let below = known.get(at);
        if (!below) known.set(at, (below = new Map()));
        let next = below.get(name);
        if (!next) {
          next = frame(name, at);
          below.set(name, next);
          at.children.push(next);
        }
        at = next;
        put(at, weight, index === names.length - 1);
      });
    }
  };
  add(side, (to, weight, isLeaf) => {
    to.weight += weight;
    if (isLeaf) to.own += weight;
  });
  if (other) {
    add(other, (to, weight, isLeaf) => {
      to.other += weight;
      if (isLeaf) to.ownOther += weight;
    });
  }
  for (const one of known.keys()) one.children.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
  return root;
}

export interface Box {
  frame: Frame;
  left: number;
  width: number;
  /** Above the frame that is zoomed to. */
  isAbove: boolean;
}

/** What is drawn in so many pixels when one frame fills them, row by row. */
export function boxes(top: Frame, width: number): Box[] {
  const drawn: Box[] = [];
  for (let above = top.parent; above; above = above.parent) drawn.unshift({ frame: above, left: 0, width, isAbove: true });
  const waiting: Box[] = [{ frame: top, left: 0, width, isAbove: false }];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    if (next.width < NARROWEST_PX) continue;
    drawn.push(next);
    let at = next.left;
    const below: Box[] = [];
    for (const child of next.frame.children) {
      const part = next.frame.weight > 0 ? (next.width * child.weight) / next.frame.weight : 0;
      below.push({ frame: child, left: at, width: part, isAbove: false });
      at += part;
    }
    waiting.push(...below.reverse());
  }
  return drawn;
}

export const isHit = (one: Frame, pattern: string): boolean => pattern !== "" && one.name.toLowerCase().includes(pattern);

/** The weight of all frames that a pattern finds; a frame inside of one that is found already counts once. */
export function found(root: Frame, pattern: string): number {
  let sum = 0;
  const waiting = [root];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    if (isHit(next, pattern)) sum += next.weight;
    else waiting.push(...next.children);
  }
  return sum;
}

/** The way from the root by numbers of children: `0.3.1`. */
export function pathOf(one: Frame): string {
  const numbers: number[] = [];
  for (let at = one; at.parent; at = at.parent) numbers.unshift(at.parent.children.indexOf(at));
  return numbers.join(".");
}

export function at(root: Frame, path: string): Frame {
  let one = root;
  for (const number of path ? path.split(".") : []) one = one.children[Number(number)] ?? one;
  return one;
}

/** A function, wherever it stands. */
export interface Func {
  name: string;
  own: number;
  ownOther: number;
  /** With all that it called; what it called of itself counts once. */
  total: number;
}

/** Threads are no functions. */
const FUNCTIONS_FROM = 2;

export function functions(root: Frame): Func[] {
  const all = new Map<string, Func>();
  const open = new Set<string>();
  const walk = (one: Frame): void => {
    let isFirst = false;
    if (one.depth >= FUNCTIONS_FROM) {
      const known = all.get(one.name) ?? { name: one.name, own: 0, ownOther: 0, total: 0 };
      all.set(one.name, known);
      known.own += one.own;
      known.ownOther += one.ownOther;
      isFirst = !open.has(one.name);
      if (isFirst) {
        known.total += one.weight;
        open.add(one.name);
      }
    }
    one.children.forEach(walk);
    if (isFirst) open.delete(one.name);
  };
  walk(root);
  return [...all.values()];
}
