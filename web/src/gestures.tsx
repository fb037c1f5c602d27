// What wheels and fingers do to a time line.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Range } from "./api";
import type { Route } from "./route";
import type { Shown } from "./state";
import { type Finger, moveTo, pan, scale, underFingers, zoomTo } from "./window";

interface GesturesProps {
  route: Route;
  shown: Shown;
  /** The window while fingers move it; undefined when they are gone. Numbers are asked for then. */
  onHold: (range: Range | undefined) => void;
  children: ComponentChildren;
}

/** A finger that moved less taps. */
const TAP_PX = 8;

/** With Ctrl the wheel zooms about the pointer, with Shift it moves; alone it scrolls the page. One finger moves, two zoom; up and down they
 *  scroll the page, which `touch-action` in lanes.css leaves to the browser. */
export function Gestures(props: GesturesProps) {
  const [element, attach] = useState<HTMLElement | null>(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    if (!element) return;
    const ends = [wheel(element, latest), touch(element, latest)];
    return () => ends.forEach((end) => end());
  }, [element]);
  return (
    <div class="gestures" ref={attach}>
      {props.children}
    </div>
  );
}

type Latest = { current: GesturesProps };

/** Where a position lies on the plots, which have the same left and right edges. */
function shareOf(element: HTMLElement, x: number): number | undefined {
  const over = element.querySelector(".u-over")?.getBoundingClientRect();
  return over && over.width > 0 ? (x - over.left) / over.width : undefined;
}

function wheel(element: HTMLElement, latest: Latest): () => void {
  const turned = (event: WheelEvent) => {
    const { route, shown } = latest.current;
    const across = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey) {
      event.preventDefault();
      const share = shareOf(element, event.clientX);
      if (share === undefined) return;
      const { since, until } = shown.range;
      scale(route, shown, event.deltaY > 0 ? 1.25 : 0.8, since + (until - since) * Math.max(0, Math.min(1, share)));
    } else if (Math.abs(across) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      event.preventDefault();
      pan(route, shown, Math.sign(across) * 0.1);
    }
  };
  element.addEventListener("wheel", turned, { passive: false });
  return () => element.removeEventListener("wheel", turned);
}

function touch(element: HTMLElement, latest: Latest): () => void {
  const fingers = new Map<number, Finger & { x: number; from: number }>();
  let held: Range | undefined;
  let [isMoved, isPinch] = [false, false];
  let frame = 0;

  /** From here on each finger holds the time that is under it. */
  const anchor = () => {
    const { since, until } = held ?? latest.current.shown.range;
    for (const finger of fingers.values()) {
      finger.share = shareOf(element, finger.x) ?? 0;
      finger.at = since + (until - since) * finger.share;
    }
  };
  const draw = () => {
    frame = 0;
    const { shown, onHold } = latest.current;
    for (const finger of fingers.values()) finger.share = shareOf(element, finger.x) ?? finger.share;
    const { since, until } = held ?? shown.range;
    held = underFingers(shown, [...fingers.values()], until - since);
    onHold(held);
  };
  const down = (event: PointerEvent) => {
    if (event.pointerType !== "touch" || fingers.size === 2 || !(event.target as Element).closest(".u-over")) return;
    fingers.set(event.pointerId, { x: event.clientX, from: event.clientX, at: 0, share: 0 });
    isPinch ||= fingers.size === 2;
    isMoved ||= isPinch;
    anchor();
  };
  const move = (event: PointerEvent) => {
    const finger = fingers.get(event.pointerId);
    if (!finger) return;
    finger.x = event.clientX;
    isMoved ||= Math.abs(finger.x - finger.from) > TAP_PX;
    if (isMoved) frame ||= requestAnimationFrame(draw);
  };
  const up = (event: PointerEvent) => {
    if (!fingers.has(event.pointerId)) return;
    cancelAnimationFrame(frame);
    if (frame) draw();
    fingers.delete(event.pointerId);
    if (fingers.size > 0) return anchor();
    const { route, shown, onHold } = latest.current;
    // The browser has taken over what it cancels: the page scrolls.
    if (held && event.type === "pointerup") (isPinch ? zoomTo : moveTo)(route, shown, held);
    if (held) onHold(undefined);
    held = undefined;
    [isMoved, isPinch] = [false, false];
  };
  /** Two fingers never scroll the page, however they begin. */
  const keep = (event: TouchEvent) => {
    if (fingers.size === 2 && event.cancelable) event.preventDefault();
  };
  element.addEventListener("pointerdown", down);
  // What a finger went down on may be drawn anew, or be gone, before it is lifted.
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", up);
  window.addEventListener("pointercancel", up);
  element.addEventListener("touchmove", keep, { passive: false });
  return () => {
    cancelAnimationFrame(frame);
    element.removeEventListener("pointerdown", down);
    window.removeEventListener("pointermove", move);
    window.removeEventListener("pointerup", up);
    window.removeEventListener("pointercancel", up);
    element.removeEventListener("touchmove", keep);
  };
}
