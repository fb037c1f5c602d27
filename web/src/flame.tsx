// A flame graph: the root on top, search, zoom, and a table of the functions for whoever does not see it.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { at, boxes, type Box, found, type Frame, functions, isHit, pathOf } from "./stacks";
import { percent, quantity } from "./format";
import { useWidth } from "./state";

interface FlameProps {
  root: Frame;
  /** Of the weights, as in the metric table. */
  unit: string;
  /** What the weight is: `time off CPU`. */
  weight: string;
  isDifferential?: boolean;
  search: string;
  zoom: string;
  onSearch: (text: string) => void;
  onZoom: (path: string) => void;
}

/** Under a finger frames are higher; the table below has the same as buttons. */
const ROW_PX = window.matchMedia("(pointer: coarse)").matches ? 32 : 20;
/** Narrower boxes have no room for a letter. */
const TEXT_PX = 24;
const FUNCTIONS = 12;

type Kind = "all" | "thread" | "kernel" | "unknown" | "user";

function kind(one: Frame): Kind {
  if (!one.parent) return "all";
  if (one.depth === 1) return "thread";
  if (one.name.endsWith("_[k]")) return "kernel";
  return one.name.startsWith("[") ? "unknown" : "user";
}

/** Always the same shade for the same name. */
function shade(name: string): number {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) >>> 0;
  return (hash % 997) / 997;
}

/** From −1, only on the other side, to 1, only on this one. */
const difference = (one: { weight: number; other: number }): number => (one.weight + one.other > 0 ? (one.weight - one.other) / (one.weight + one.other) : 0);

export function Flame({ root, unit, weight, isDifferential = false, search, zoom, onSearch, onZoom }: FlameProps) {
  const [attach, width] = useWidth();
  const pattern = search.trim().toLowerCase();
  const top = useMemo(() => at(root, zoom), [root, zoom]);
  const drawn = useMemo(() => (width > 0 ? boxes(top, width) : []), [top, width]);
  const [told, tell] = useState<Frame>();
  const [focused, setFocused] = useState<Frame>(top);
  const elements = useRef(new Map<Frame, HTMLElement>());
  const hasMoved = useRef(false);
  const latest = useRef(onZoom);
  latest.current = onZoom;
  useEffect(() => {
    tell(undefined);
    if (!drawn.some((box) => box.frame === focused)) setFocused(top);
  }, [drawn]);
  useLayoutEffect(() => {
    if (hasMoved.current) elements.current.get(focused)?.focus();
    hasMoved.current = false;
  }, [focused, drawn]);
  const rows = Math.max(0, ...drawn.map((box) => box.frame.depth)) + 1;
  const sum = pattern ? found(root, pattern) : 0;
  const share = (part: number, of: number) => (of > 0 ? `${((100 * part) / of).toFixed(part / of < 0.1 ? 1 : 0)} %` : "–");
  const words = (one: Frame): string => {
    const beside = isDifferential ? `, on the other side ${quantity(one.other, unit)}` : "";
    const ofShown = top.parent && !isAbove(one, top) ? `, ${share(one.weight, top.weight)} of what is shown` : "";
    return `${one.name}: ${quantity(one.weight, unit)}${beside}, ${share(one.weight, root.weight)} of all${ofShown}`;
  };
  // Thousands of boxes are not drawn anew for each one that the pointer crosses.
  const items = useMemo(
    () =>
      drawn.map((box) => (
        <Item
          key={pathOf(box.frame)}
          box={box}
          label={words(box.frame)}
          isHit={isHit(box.frame, pattern)}
          isDifferential={isDifferential}
          isFocused={box.frame === focused}
          keep={(element) => (element ? elements.current.set(box.frame, element) : elements.current.delete(box.frame))}
          onPress={() => {
            setFocused(box.frame);
            latest.current(pathOf(box.frame));
          }}
          onTell={() => tell(box.frame)}
        />
      )),
    [drawn, pattern, isDifferential, focused],
  );
  const move = (to: Frame | undefined) => {
    if (!to) return;
    hasMoved.current = true;
    setFocused(to);
    tell(to);
  };
  const pressed = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const index = drawn.findIndex((box) => box.frame === focused);
    const beside = (step: number) => {
      for (let i = index + step; i >= 0 && i < drawn.length; i += step) if (drawn[i]!.frame.depth === focused.depth) return drawn[i]!.frame;
      return undefined;
    };
    switch (event.key) {
      case "ArrowDown":
        move(drawn.filter((box) => box.frame.parent === focused).sort((a, b) => b.width - a.width)[0]?.frame);
        break;
      case "ArrowUp":
        move(focused.parent);
        break;
      case "ArrowLeft":
        move(beside(-1));
        break;
      case "ArrowRight":
        move(beside(1));
        break;
      case "Home":
        move(root);
        break;
      case "Enter":
      case " ":
        hasMoved.current = true;
        onZoom(pathOf(focused));
        break;
      case "Escape":
        if (!top.parent) return;
        hasMoved.current = true;
        onZoom("");
        break;
      default:
        return;
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const shown = told ?? top;
  return (
    <div class="flame">
      <div class="bar">
        <input type="search" placeholder="search" aria-label="Search for a part of a name" value={search} onInput={(event) => onSearch(event.currentTarget.value)} />
        <button type="button" disabled={!top.parent} onClick={() => onZoom("")}>
          Whole
        </button>
        <output class="range">{pattern && `${quantity(sum, unit)}, ${share(sum, root.weight)} of all`}</output>
      </div>
      <div class="boxes" ref={attach} role="tree" aria-label={`Stacks, weight: ${weight}`} style={{ height: `${rows * ROW_PX}px`, "--row": `${ROW_PX - 1}px` }} onKeyDown={pressed} onMouseLeave={() => tell(undefined)}>
        {items}
      </div>
      <p class="told">{words(shown)}</p>
      {isDifferential && (
        <p class="note">
          <span class="sample more" /> heavier than on the other side <span class="sample less" /> lighter; as wide as the weight on this side. What only the other side has is not drawn: swap them.
        </p>
      )}
      <Functions root={root} {...{ unit, isDifferential, onSearch }} />
    </div>
  );
}

function isAbove(one: Frame, top: Frame): boolean {
  for (let above = top.parent; above; above = above.parent) if (above === one) return true;
  return false;
}

interface ItemProps {
  box: Box;
  label: string;
  isHit: boolean;
  isDifferential: boolean;
  isFocused: boolean;
  keep: (element: HTMLElement | null) => void;
  onPress: () => void;
  onTell: () => void;
}

function Item({ box, label, isHit, isDifferential, isFocused, keep, onPress, onTell }: ItemProps) {
  const { frame, left, width, isAbove } = box;
  const by = difference(frame);
  const colour = isHit ? "hit" : isAbove ? "above" : isDifferential ? (by >= 0 ? "more" : "less") : kind(frame);
  const style = {
    left: `${left}px`,
    top: `${frame.depth * ROW_PX}px`,
    width: `${Math.max(width - 0.5, 0.5)}px`,
    "--shade": isDifferential ? Math.abs(by).toFixed(3) : shade(frame.name).toFixed(3),
  };
  return (
    <div
      ref={keep}
      role="treeitem"
      aria-level={frame.depth + 1}
      aria-label={label}
      aria-selected={isFocused}
      tabIndex={isFocused ? 0 : -1}
      class={`frame ${colour}`}
      style={style}
      title={label}
      onClick={onPress}
      onMouseEnter={onTell}
      onFocus={onTell}
    >
      {width > TEXT_PX && frame.name}
    </div>
  );
}

function Functions({ root, unit, isDifferential, onSearch }: { root: Frame; unit: string; isDifferential: boolean; onSearch: (text: string) => void }) {
  const rows = useMemo(() => {
    const size = isDifferential ? (one: { own: number; ownOther: number }) => Math.abs(one.own - one.ownOther) : (one: { own: number }) => one.own;
    return functions(root)
      .filter((one) => size(one) > 0)
      .sort((a, b) => size(b) - size(a))
      .slice(0, FUNCTIONS);
  }, [root, isDifferential]);
  if (rows.length === 0) return null;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of functions">
      <table class="data">
        <thead>
          <tr>
            <th scope="col">{isDifferential ? "functions that differ most" : "functions"}</th>
            <th scope="col" class="num">
              itself
            </th>
            {isDifferential && (
              <th scope="col" class="num">
                on the other side
              </th>
            )}
            <th scope="col" class="num">
              of all
            </th>
            <th scope="col" class="num">
              with what it called
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((one) => (
            <tr key={one.name}>
              <th scope="row" class="name" title={one.name}>
                <button type="button" class="plain" onClick={() => onSearch(one.name)}>
                  {one.name}
                </button>
              </th>
              <td class="num">{quantity(one.own, unit)}</td>
              {isDifferential && <td class="num">{quantity(one.ownOther, unit)}</td>}
              <td class="num">{percent(root.weight > 0 ? one.own / root.weight : 0)}</td>
              <td class="num">{quantity(one.total, unit)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
