// What was changed on the machine in the window: pins above the lanes, and the same in words.
import { useEffect, useState } from "preact/hooks";
import { ApiError, json, lastDay, type Range, span } from "./api";
import { moment, parseTime } from "./format";
import { Pairs } from "./pairs";
import { AXIS_PX } from "./plot";
import { link, round, type Route } from "./route";
import { type Shown, useWidth } from "./state";

export interface Change {
  at: string | null;
  kind: string;
  name: string;
  cgroup?: string;
  cgroup_name?: string;
  from?: string;
  to?: string;
}

interface Changes {
  changes: Change[];
  index_error: string | null;
}

const NONE: Changes = { changes: [], index_error: null };
/** While it follows a recorder: settings are seldom changed, and reading them takes a while. */
const EVERY_S = 60;
/** Pins that are nearer to each other are one: each is as wide as a target for a finger. */
const PIN_PX = 26;

export function useChanges(shown: Shown): Changes {
  const [found, set] = useState(NONE);
  const { since, until } = shown.range;
  const asked = shown.isLive ? Math.floor(until / EVERY_S) : `${since} ${until}`;
  useEffect(() => {
    const abort = new AbortController();
    json<Changes>("changes", span(lastDay(shown.range)), abort.signal).then(set, (error: Error) => {
      if (abort.signal.aborted) return;
      // Where nothing was recorded, nothing was changed.
      set(error instanceof ApiError && error.status === 404 ? NONE : { changes: [], index_error: error.message });
    });
    return () => abort.abort();
  }, [asked]);
  return found;
}

const what = (one: Change): string => [one.kind, one.name, one.cgroup_name ?? one.cgroup].filter(Boolean).join(" ");
const text = (one: Change): string => (one.from === undefined && one.to === undefined ? "" : `${one.from ?? "nothing"} → ${one.to ?? "nothing"}`);

interface Above {
  route: Route;
  changes: Change[];
  range: Range;
}

/** Above the lanes: a pin for each change, or for several that are close together. */
export function Pins({ route, changes, range }: Above) {
  const inside = changes.filter((one) => parseTime(one.at) >= range.since && parseTime(one.at) <= range.until);
  return inside.length > 0 ? <Row route={route} changes={inside} range={range} /> : null;
}

/** Of its own, for its width is known from when it is there. */
function Row({ route, changes, range }: Above) {
  const [box, width] = useWidth();
  const near = PIN_PX / Math.max(width, PIN_PX);
  const pins: { from: number; at: number; of: Change[] }[] = [];
  for (const one of changes) {
    const at = parseTime(one.at);
    const from = (at - range.since) / (range.until - range.since);
    const last = pins.at(-1);
    if (last && from - last.from < near) last.of.push(one);
    else pins.push({ from, at, of: [one] });
  }
  const query = Object.fromEntries(route.query);
  return (
    <nav class="pins" ref={box} aria-label="Changes in this window" style={{ marginLeft: `${AXIS_PX}px` }}>
      {pins.map(({ from, at, of }) => {
        const told = of.map((one) => `${what(one)} ${text(one)}`).join("; ");
        return (
          <a key={at} href={link(route.view, route.item, { ...query, t: round(at) })} title={told} aria-label={`${of.length > 1 ? `${of.length} changes` : "changed"} ${moment(at)}: ${told}`} style={{ "--from": `${from * 100}%` }}>
            ▾{of.length > 1 && of.length}
          </a>
        );
      })}
    </nav>
  );
}

export function Changed({ found }: { found: Changes }) {
  const rows = found.changes.map((one): [string, string] => [what(one), `${one.at ? moment(parseTime(one.at)) : ""} ${text(one)}`]);
  return (
    <>
      <Pairs title="What was changed in this window" rows={rows} />
      {found.index_error && <p class="note">Not all of what was changed is known: {found.index_error}</p>}
    </>
  );
}
