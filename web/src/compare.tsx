// What differs between two ranges of the recording.
import { useEffect, useState } from "preact/hooks";
import { DAY_S, type Range, stamp } from "./api";
import { length, quantity, rangeText, seconds } from "./format";
import { change, link, number, rangeQuery, round, type Changes, type Route } from "./route";
import { type Shown, useJson } from "./state";

interface Level {
  samples: number;
  median: number;
  spread: number;
}

interface Difference {
  metric: string;
  entity: string;
  unit: string;
  a: Level;
  b: Level;
  shift: number;
  ratio?: number;
  superiority: number;
  p?: number;
  sure: boolean;
  note?: string;
}

interface Pair {
  differences: Difference[];
  unsure: number;
  small: number;
  same: number;
  only_a?: string[];
  only_b?: string[];
}

interface Compared {
  pairs: Pair[];
}

/** The server compares so much at once. */
const SIDE_MAX_S = 600;
const FIRST_ROWS = 40;
const WEEK_S = 7 * DAY_S;

const last = (range: Range): Range => ({ since: Math.max(range.since, range.until - SIDE_MAX_S), until: range.until });
const moved = (range: Range, by: number): Range => ({ since: range.since - by, until: range.until - by });

/** What a range is usually compared with, as far as it was recorded. */
export function baselines(range: Range, whole: Range): [label: string, range: Range][] {
  const b = last(range);
  const all: [string, Range][] = [
    ["just before", moved(b, b.until - b.since)],
    ["the same time yesterday", moved(b, DAY_S)],
    ["the same time last week", moved(b, WEEK_S)],
  ];
  return all.map(([label, one]): [string, Range] => [label, { since: Math.max(one.since, whole.since), until: Math.min(one.until, whole.until) }]).filter(([, one]) => one.until - one.since >= 1);
}

const sideA = (range: Range): Changes => ({ a_since: round(range.since), a_until: round(range.until) });

/** The view that compares a range with another one. */
export const compareLink = (b: Range, a: Range): string => link("compare", "", { ...rangeQuery(last(b)), ...sideA(a) });

/** Below the time line: the window that is shown against others. */
export function CompareWith({ shown }: { shown: Shown }) {
  const all = baselines(shown.range, shown.whole);
  return (
    <div class="bar" role="group" aria-label="Compare this window">
      <span>Compare {shown.range.until - shown.range.since > SIDE_MAX_S ? "the last 10 minutes of this window" : "this window"} with</span>
      <span class="buttons">
        {all.map(([label, range]) => (
          <a key={label} class="button" href={compareLink(shown.range, range)}>
            {label}
          </a>
        ))}
        <a class="button" href={link("compare", "", rangeQuery(last(shown.range)))}>
          another range
        </a>
      </span>
    </div>
  );
}

export function Compare({ route, shown }: { route: Route; shown: Shown }) {
  const b = last(shown.range);
  const [a_since, a_until] = [number(route, "a_since"), number(route, "a_until")];
  const a = a_since !== undefined && a_until !== undefined && a_until > a_since ? { since: a_since, until: a_until } : undefined;
  const go = (first: Range, other: Range) => change(route, { ...sideA(first), ...rangeQuery(other) });
  return (
    <>
      <div class="bar">
        <h2>Compare</h2>
        <span class="range">two ranges of the recording, thing by thing</span>
      </div>
      <Ranges a={a} b={b} onChoose={go} />
      <div class="bar" role="group" aria-label="Usual choices of A">
        <span>A:</span>
        <span class="buttons">
          {baselines(b, shown.whole).map(([label, range]) => (
            <button type="button" key={label} aria-pressed={a?.since === round(range.since) && a.until === round(range.until)} onClick={() => go(range, b)}>
              {label}
            </button>
          ))}
          {a && (
            <button type="button" onClick={() => go(b, a)}>
              swap A and B
            </button>
          )}
          <a class="button" href={link("time", "", rangeQuery(b))}>
            B on the time line
          </a>
        </span>
      </div>
      {a ? <Differences key={JSON.stringify([a, b])} a={a} b={b} /> : <p class="note">B is the window of the time line. Choose what it is compared with.</p>}
    </>
  );
}

/** As an input of a day and a time has it; the page's times are UTC. */
const typed = (at: number | undefined): string => (at === undefined ? "" : new Date(Math.round(at) * 1000).toISOString().slice(0, 19));
const meant = (text: string): number => Date.parse(`${text}Z`) / 1000;

function Ranges({ a, b, onChoose }: { a: Range | undefined; b: Range; onChoose: (a: Range, b: Range) => void }) {
  const known = [a?.since, a?.until, b.since, b.until].map(typed);
  const [texts, set] = useState(known);
  useEffect(() => set(known), [known.join()]);
  const [wrong, setWrong] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    const [a_since = NaN, a_until = NaN, b_since = NaN, b_until = NaN] = texts.map(meant);
    const isRange = (since: number, until: number) => until > since && until - since <= SIDE_MAX_S;
    if (!isRange(a_since, a_until) || !isRange(b_since, b_until)) return setWrong("Each range ends after it begins, and is at most 10 minutes long.");
    setWrong("");
    onChoose({ since: a_since, until: a_until }, { since: b_since, until: b_until });
  };
  const input = (index: number, label: string) => (
    <input type="datetime-local" step="1" required aria-label={label} value={texts[index]} onInput={(event) => set(texts.map((text, i) => (i === index ? event.currentTarget.value : text)))} />
  );
  return (
    <form class="sides" onSubmit={submit}>
      <fieldset>
        <legend>A, the usual (UTC)</legend>
        {input(0, "A, from")} to {input(1, "A, until")}
      </fieldset>
      <fieldset>
        <legend>B (UTC)</legend>
        {input(2, "B, from")} to {input(3, "B, until")}
      </fieldset>
      <button type="submit">Compare</button>
      {wrong && (
        <p class="error" role="alert">
          {wrong}
        </p>
      )}
    </form>
  );
}

function LevelView({ of, unit }: { of: Level; unit: string }) {
  return (
    <>
      {quantity(of.median, unit)}
      {of.samples > 1 && of.spread !== 0 && <span class="spread"> ± {quantity(of.spread, unit)}</span>}
    </>
  );
}

function factor({ ratio, shift, unit }: Difference): string {
  if (ratio !== undefined && ratio >= 10) return `${Math.round(ratio)} times`;
  if (ratio !== undefined && ratio >= 2) return `${ratio.toFixed(1)} times`;
  if (ratio !== undefined && ratio >= 0) return `${ratio >= 1 ? "+" : "−"}${(Math.abs(ratio - 1) * 100).toFixed(1)} %`;
  return `${shift > 0 ? "+" : ""}${quantity(shift, unit)}`;
}

function sureness({ p, superiority, sure, note }: Difference): string {
  const larger = Math.floor(Math.max(superiority, 1 - superiority) * 100);
  return [p !== undefined && `${superiority >= 0.5 ? "B" : "A"} higher in ${larger} % of pairs`, p !== undefined && !sure && "not sure", note].filter(Boolean).join("; ");
}

const nameOf = (one: Difference): string => (one.entity ? `${one.metric} ${one.entity}` : one.metric);

function headline({ differences }: Pair): string {
  const sure = differences.filter((one) => one.sure);
  const first = sure[0];
  if (!first) return differences.some((one) => one.p === undefined) ? "One sample each: what differs may be chance" : "Nothing differs surely";
  const count = sure.length === 1 ? "1 thing differs surely" : `${sure.length} things differ surely`;
  return `${count}; most of all ${nameOf(first)}: ${quantity(first.a.median, first.unit)} → ${quantity(first.b.median, first.unit)}`;
}

function Differences({ a, b }: { a: Range; b: Range }) {
  const { answer, error } = useJson<Compared>("compare", { a_since: stamp(a.since), a_until: stamp(a.until), b_since: stamp(b.since), b_until: stamp(b.until) });
  const [isOpen, setOpen] = useState(false);
  const [filter, setFilter] = useState("");
  if (error) {
    return (
      <p class="error" role="alert">
        {error}
      </p>
    );
  }
  const pair = answer?.pairs[0];
  if (!answer) return <p class="note">comparing {length(a.until - a.since)} with {length(b.until - b.since)} …</p>;
  if (!pair) return <p class="note">There is nothing to compare.</p>;
  const matching = pair.differences.filter((one) => nameOf(one).toLowerCase().includes(filter.trim().toLowerCase()));
  const rows = isOpen ? matching : matching.slice(0, FIRST_ROWS);
  return (
    <section aria-labelledby="differ">
      <h3 id="differ" class="cause">
        {headline(pair)}
      </h3>
      <p class="note">
        A: {rangeText(a.since, a.until)} ({seconds(a.until - a.since)}); B: {rangeText(b.since, b.until)} ({seconds(b.until - b.since)}). Medians ± their spread.
      </p>
      <div class="bar">
        <input type="search" placeholder="filter" aria-label="Filter by metric or row" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        <span class="range" role="status">
          {filter && `${matching.length} of ${pair.differences.length}`}
        </span>
      </div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of differences">
        <table class="data differences">
          <thead>
            <tr>
              <th scope="col">what</th>
              <th scope="col" class="num">
                A
              </th>
              <th scope="col" class="num">
                B
              </th>
              <th scope="col" class="num">
                B to A
              </th>
              <th scope="col">how sure</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((one) => (
              <tr key={nameOf(one)}>
                <th scope="row" class="name" title={nameOf(one)}>
                  <code>{one.metric}</code> {one.entity}
                </th>
                <td class="num">
                  <LevelView of={one.a} unit={one.unit} />
                </td>
                <td class="num">
                  <LevelView of={one.b} unit={one.unit} />
                </td>
                <td class={`num ${one.b.median >= one.a.median ? "up" : "down"}`}>{factor(one)}</td>
                <td>{sureness(one)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {matching.length > rows.length && (
        <button type="button" onClick={() => setOpen(true)}>
          {matching.length - rows.length} more
        </button>
      )}
      <p class="note">{rest(pair)}</p>
    </section>
  );
}

const NAMED = 12;

function rest(pair: Pair): string {
  const only = (side: string, list: string[] = []) => list.length > 0 && `only ${side} has ${list.slice(0, NAMED).join(", ")}${list.length > NAMED ? ", …" : ""}`;
  return [
    pair.unsure > 0 && `${pair.unsure} may differ by chance`,
    pair.small > 0 && `${pair.small} differ surely, by less than 5 %`,
    pair.same > 0 && `${pair.same} are the same`,
    only("A", pair.only_a),
    only("B", pair.only_b),
  ]
    .filter(Boolean)
    .join("; ");
}
