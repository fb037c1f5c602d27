// How the window of time that is shown is moved and zoomed.
import type { Range } from "./api";
import { change, rangeQuery, round, type Route } from "./route";
import type { Shown } from "./state";

/** Shorter than a few samples there is nothing to see. */
const MIN_SAMPLES = 5;
/** Nearer to each other, as a share of the plot, two fingers zoom no further. */
const NEAREST = 0.05;

const least = (shown: Shown): number => MIN_SAMPLES * shown.recording.interval_s;

export function zoomTo(route: Route, shown: Shown, range: Range): void {
  const { whole } = shown;
  if (range.until - range.since >= whole.until - whole.since) return change(route, { ...rangeQuery(whole), span: undefined });
  const middle = (range.since + range.until) / 2;
  const half = Math.max(range.until - range.since, least(shown)) / 2;
  change(route, { ...rangeQuery({ since: middle - half, until: middle + half }), span: undefined });
}

/** Moves a window so that half of it stays on the recording. */
function onRecording({ whole }: Shown, { since, until }: Range): Range {
  const half = (until - since) / 2;
  const to = Math.max(whole.since - half, Math.min(whole.until - half, since));
  return { since: to, until: to + (until - since) };
}

export function moveTo(route: Route, shown: Shown, range: Range): void {
  change(route, { ...rangeQuery(onRecording(shown, range)), span: undefined }, true);
}

export function pan(route: Route, shown: Shown, share: number): void {
  const { since, until } = shown.range;
  const by = (until - since) * share;
  moveTo(route, shown, { since: since + by, until: until + by });
}

export function scale(route: Route, shown: Shown, factor: number, about = (shown.range.since + shown.range.until) / 2): void {
  const { since, until } = shown.range;
  zoomTo(route, shown, { since: about - (about - since) * factor, until: about + (until - about) * factor });
}

export function goLive(route: Route, shown: Shown): void {
  if (shown.isLive) return change(route, { ...rangeQuery(shown.range), span: undefined });
  change(route, { since: undefined, until: undefined, span: round(shown.range.until - shown.range.since) });
}

/** The time that a finger was put on, and where it is now: from 0 at the left of a plot to 1 at its right. */
export interface Finger {
  at: number;
  share: number;
}

/** The window in which the times that one or two fingers hold lie under them. `size` is its length with one. */
export function underFingers(shown: Shown, fingers: Finger[], size: number): Range {
  const [first, last] = [...fingers].sort((a, b) => a.at - b.at);
  if (!first) return shown.range;
  const { whole } = shown;
  const pinched = last && (last.at - first.at) / Math.max(last.share - first.share, NEAREST);
  const length = pinched === undefined ? size : Math.max(least(shown), Math.min(whole.until - whole.since, pinched));
  const since = first.at - first.share * length;
  return onRecording(shown, { since, until: since + length });
}
