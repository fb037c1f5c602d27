// What probes captured: a list, one of them with its stacks and tables, and two against each other.
import { useMemo, useState } from "preact/hooks";
import { type Range, stamp } from "./api";
import { Arm } from "./arm";
import { type Folded, tree } from "./stacks";
import { Flame } from "./flame";
import { clock, moment, parseTime, quantity, seconds } from "./format";
import { change, link, rangeQuery, round, type Route } from "./route";
import { type Shown, useJson } from "./state";

interface Head {
  id: string;
  kind: string;
  since: string;
  until: string;
  seconds: number;
  why: string;
  filter: Record<string, string>;
  events: number;
  lost: number;
  ended: string;
  weight: string | null;
  error?: string;
}

interface List {
  captures: Head[];
  left_out: number;
  /** What the recorder arms when it is asked; absent where it may not be asked. */
  may_be_armed?: string[];
}

interface Profile {
  weight: string;
  beside: string;
  unit: "s" | "B" | "1";
  total: number;
  stacks: Folded[];
  cut: { stacks: number; weight: number };
}

interface TableOf {
  name: string;
  columns: { name: string; unit: string; help: string }[];
  rows: (string | number | null)[][];
  left_out: number;
}

interface Histogram {
  name: string;
  unit: string;
  buckets: [number | null, number][];
}

interface Capture extends Head {
  host: string;
  cost: string;
  notes: string[];
  tables: TableOf[];
  histograms: Histogram[];
  profile?: Profile;
}

/** Units of captures as those of metrics. */
const UNITS: Record<string, string> = { s: "s", B: "bytes", "1": "" };
const RATES: Record<string, string> = { s: "s/s", B: "bytes/s" };
const FIRST_ROWS = 10;

/** Of what is counted, its name. */
const unitOf = (profile: Profile): string => (profile.unit === "1" ? profile.weight : (UNITS[profile.unit] ?? ""));
const rateOf = (profile: Profile): string => (profile.unit === "1" ? `${profile.weight}/s` : (RATES[profile.unit] ?? ""));

const filterText = (filter: Record<string, string>): string =>
  Object.entries(filter)
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");

/** What it is of, and who armed it: `rule NAME`, `by hand`, `asked for by ADDRESS`. */
function whence({ filter, why }: Head): string {
  const by = why.startsWith("rule ") ? `armed by ${why}` : why.startsWith("asked ") ? why : `armed ${why || "by hand"}`;
  const of = filterText(filter);
  return of ? `Of ${of}; ${by}` : by.charAt(0).toUpperCase() + by.slice(1);
}

export function Captures({ shown }: { shown: Shown }) {
  const { answer, error } = useJson<List>("captures", { limit: 500 });
  const around = (one: Head): Range => ({ since: parseTime(one.since) - 30, until: parseTime(one.until) + 30 });
  return (
    <>
      <div class="bar">
        <h2>Captures</h2>
        <span class="range">what probes saw that rules or people armed, the newest first</span>
      </div>
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {answer?.may_be_armed && <Arm kinds={answer.may_be_armed} interval_s={shown.recording.interval_s} />}
      {answer?.captures.length === 0 && (
        <p class="note">
          None is kept beside this recording. The recorder arms probes when one of its rules holds; by hand: <code>mitra capture offcpu</code>
        </p>
      )}
      {!!answer?.captures.length && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of captures">
          <table class="data">
            <thead>
              <tr>
                <th scope="col">time</th>
                <th scope="col">probe</th>
                <th scope="col">of</th>
                <th scope="col">armed by</th>
                <th scope="col" class="num">
                  for
                </th>
                <th scope="col" class="num">
                  events
                </th>
                <th scope="col">shows</th>
                <th scope="col">
                  <span class="unseen">where it is on the time line</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {answer.captures.map((one) => (
                <tr key={one.id}>
                  <th scope="row">
                    <a href={link("capture", one.id, shown.isLive ? {} : rangeQuery(shown.range))}>{moment(parseTime(one.since))}</a>
                  </th>
                  <td>{one.kind}</td>
                  {one.error ? (
                    <td colSpan={6}>{one.error}</td>
                  ) : (
                    <>
                      <td class="long">{filterText(one.filter) || "the machine"}</td>
                      <td class="long">{one.why}</td>
                      <td class="num">{seconds(one.seconds)}</td>
                      <td class="num">{quantity(one.events, "")}</td>
                      <td>{one.weight ? `stacks: ${one.weight}` : "a table"}</td>
                      <td>
                        <a href={link("time", "", { ...rangeQuery(around(one)), t: round(parseTime(one.since)) })} aria-label={`Time line at ${clock(parseTime(one.since))}`}>
                          time line
                        </a>
                      </td>
                    </>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!!answer?.left_out && <p class="note">{answer.left_out} older ones are not listed.</p>}
    </>
  );
}

export function CaptureView({ route }: { route: Route }) {
  const { answer, error } = useJson<Capture>(`captures/${encodeURIComponent(route.item)}`, {});
  const other = route.query.get("with") ?? "";
  const set = (changes: Record<string, string | undefined>) => change(route, changes, true);
  if (error && !answer) {
    return (
      <p class="error" role="alert">
        {error}
      </p>
    );
  }
  if (!answer) return <p class="note">reading …</p>;
  const since = parseTime(answer.since);
  return (
    <article class="capture">
      <div class="bar">
        <h2>
          {answer.kind} <span class="range">{moment(since)} UTC, for {seconds(answer.seconds)}</span>
        </h2>
        <span class="buttons">
          <a class="button" href={link("captures")}>
            All captures
          </a>
          <a class="button" href={link("time", "", { ...rangeQuery({ since: since - 30, until: parseTime(answer.until) + 30 }), t: round(since) })}>
            On the time line
          </a>
        </span>
      </div>
      <About of={answer} />
      {answer.profile && <With capture={answer} other={other} onChoose={(id) => set({ with: id || undefined, zoom: undefined })} />}
      <Stacks capture={answer} other={other} search={route.query.get("q") ?? ""} zoom={route.query.get("zoom") ?? ""} onSearch={(q) => set({ q })} onZoom={(zoom) => set({ zoom })} />
      <Tables of={answer} />
    </article>
  );
}

function About({ of }: { of: Capture }) {
  return (
    <>
      <p class="note">
        {whence(of)}; {quantity(of.events, "")} events; {of.ended}. {of.cost}
      </p>
      {of.notes.length > 0 && (
        <details class="notes">
          <summary>{of.notes.length === 1 ? "1 note" : `${of.notes.length} notes`}</summary>
          <ul>
            {of.notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

/** The choice of what a capture is compared with. */
function With({ capture, other, onChoose }: { capture: Capture; other: string; onChoose: (id: string) => void }) {
  const { answer } = useJson<List>("captures", { kind: capture.kind, limit: 200 });
  const others = answer?.captures.filter((one) => one.id !== capture.id && one.weight) ?? [];
  if (others.length === 0) return null;
  return (
    <div class="bar">
      <label>
        Compare with{" "}
        <select value={other} onChange={(event) => onChoose(event.currentTarget.value)}>
          <option value="">nothing</option>
          {others.map((one) => (
            <option key={one.id} value={one.id}>
              {moment(parseTime(one.since))} {filterText(one.filter)}
            </option>
          ))}
        </select>
      </label>
      {other && (
        <a class="button" href={link("capture", other, { with: capture.id })}>
          Swap
        </a>
      )}
    </div>
  );
}

interface StacksProps {
  capture: Capture;
  other: string;
  search: string;
  zoom: string;
  onSearch: (text: string) => void;
  onZoom: (path: string) => void;
}

function Stacks(props: StacksProps) {
  const { capture, other } = props;
  if (!capture.profile) return <p class="note">This probe keeps no stacks.</p>;
  if (capture.profile.stacks.length === 0) return <p class="note">No stack was seen.</p>;
  return other ? <Differential {...props} profile={capture.profile} /> : <Single {...props} profile={capture.profile} />;
}

function Single({ profile, search, zoom, onSearch, onZoom }: StacksProps & { profile: Profile }) {
  // All that came may be gone again.
  const [isSecond, setSecond] = useState(profile.total === 0 && profile.beside !== "");
  const choose = (second: boolean) => {
    setSecond(second);
    // The places of frames are those of the other weight.
    onZoom("");
  };
  const root = useMemo(() => tree({ stacks: profile.stacks, second: isSecond }), [profile, isSecond]);
  return (
    <section aria-label="Flame graph">
      {profile.beside && (
        <span class="buttons" role="group" aria-label="Weight">
          {[profile.weight, profile.beside].map((name, index) => (
            <button type="button" key={name} aria-pressed={isSecond === (index === 1)} onClick={() => choose(index === 1)}>
              {name}
            </button>
          ))}
        </span>
      )}
      <Flame {...{ root, search, zoom, onSearch, onZoom }} unit={unitOf(profile)} weight={isSecond ? profile.beside : profile.weight} />
      <Cut profile={profile} />
    </section>
  );
}

/** Weights per second that each probe was armed: two captures are seldom equally long. */
function Differential({ capture, profile, other, search, zoom, onSearch, onZoom }: StacksProps & { profile: Profile }) {
  const { answer, error } = useJson<Capture>(`captures/${encodeURIComponent(other)}`, {});
  const root = useMemo(() => {
    if (!answer?.profile) return undefined;
    return tree({ stacks: profile.stacks, factor: 1 / (capture.seconds || 1) }, { stacks: answer.profile.stacks, factor: 1 / (answer.seconds || 1) });
  }, [profile, answer]);
  if (error) {
    return (
      <p class="error" role="alert">
        {error}
      </p>
    );
  }
  if (!root || !answer) return <p class="note">reading …</p>;
  return (
    <section aria-label="Differential flame graph">
      <Flame {...{ root, search, zoom, onSearch, onZoom }} isDifferential unit={rateOf(profile)} weight={`${profile.weight} per second`} />
      <Cut profile={profile} />
      {answer.profile && <Cut profile={answer.profile} />}
    </section>
  );
}

function Cut({ profile }: { profile: Profile }) {
  const { stacks, weight } = profile.cut;
  if (stacks === 0) return null;
  return (
    <p class="note">
      The {stacks} lightest stacks are left out; they weigh {quantity(weight, unitOf(profile))} of {quantity(profile.total, unitOf(profile))} ({profile.weight}).
    </p>
  );
}

function cell(value: string | number | null | undefined, unit: string, name: string): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "string") return value;
  if (unit === "" || name === "pid") return String(value);
  return quantity(value, UNITS[unit] ?? unit);
}

function Tables({ of, first = FIRST_ROWS }: { of: Capture; first?: number }) {
  return (
    <>
      {of.tables.map((table) => (
        <TableView key={table.name} table={table} first={first} />
      ))}
      {of.histograms.map((one) => (
        <HistogramView key={one.name} of={one} />
      ))}
    </>
  );
}

function TableView({ table, first }: { table: TableOf; first: number }) {
  const [isOpen, setOpen] = useState(false);
  const rows = isOpen ? table.rows : table.rows.slice(0, first);
  const isNumber = (column: { name: string; unit: string }) => column.unit !== "" || column.name === "pid";
  const left = table.rows.length - rows.length;
  return (
    <section aria-label={table.name}>
      <h3>{table.name}</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Table: ${table.name}`}>
        <table class="data">
          <thead>
            <tr>
              {table.columns.map((column) => (
                <th key={column.name} scope="col" class={isNumber(column) ? "num" : ""}>
                  {column.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, index) => (
              <tr key={index}>
                {table.columns.map((column, i) => (
                  <td key={column.name} class={isNumber(column) ? "num" : "cell"}>
                    {cell(row[i], column.unit, column.name)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length === 0 && <p class="note">nothing</p>}
      {left > 0 && (
        <button type="button" onClick={() => setOpen(true)}>
          {left} more rows
        </button>
      )}
      <Meanings of={table} />
      {left === 0 && table.left_out > 0 && <p class="note">{table.left_out} more rows are left out</p>}
    </section>
  );
}

function Meanings({ of }: { of: TableOf }) {
  const told = of.columns.filter((column) => column.help);
  if (told.length === 0) return null;
  return (
    <details class="notes">
      <summary>What the columns mean</summary>
      <dl class="pairs">
        {told.map((column) => (
          <div key={column.name}>
            <dt>{column.name}</dt>
            <dd>{column.help}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

function HistogramView({ of }: { of: Histogram }) {
  const most = Math.max(...of.buckets.map(([, count]) => count));
  if (!(most > 0)) return null;
  const used = of.buckets.map(([, count]) => count > 0);
  const unit = UNITS[of.unit] ?? "";
  return (
    <section aria-label={of.name}>
      <h3>{of.name}</h3>
      <table class="data histogram">
        <tbody>
          {of.buckets.slice(used.indexOf(true), used.lastIndexOf(true) + 1).map(([bound, count]) => (
            <tr key={String(bound)}>
              <th scope="row" class="num">
                {bound === null ? "above" : `up to ${quantity(bound, unit)}`}
              </th>
              <td class="num">{count}</td>
              <td aria-hidden="true">
                <i style={{ width: `${(100 * count) / most}%` }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

/** The captures of an incident, the first one with stacks open. */
export function CapturedMeanwhile({ window }: { window: Range }) {
  const { answer } = useJson<List>("captures", { since: stamp(window.since), until: stamp(window.until), limit: 20 });
  const [chosen, choose] = useState<string>();
  const list = answer?.captures.filter((one) => !one.error).toReversed() ?? [];
  const id = chosen ?? (list.find((one) => one.weight) ?? list[0])?.id;
  if (!id) return null;
  return (
    <section aria-labelledby="captured" class="captured">
      <h3 id="captured">Captured meanwhile</h3>
      <span class="buttons" role="group" aria-label="Captures">
        {list.map((one) => (
          <button type="button" key={one.id} aria-pressed={one.id === id} onClick={() => choose(one.id)}>
            {one.kind} {clock(parseTime(one.since))}
          </button>
        ))}
      </span>
      <Open key={id} id={id} />
    </section>
  );
}

function Open({ id }: { id: string }) {
  const { answer, error } = useJson<Capture>(`captures/${encodeURIComponent(id)}`, {});
  const [search, setSearch] = useState("");
  const [zoom, setZoom] = useState("");
  if (error) {
    return (
      <p class="error" role="alert">
        {error}
      </p>
    );
  }
  if (!answer) return <p class="note">reading …</p>;
  return (
    <>
      <p class="note">
        {answer.profile && `The width of a box is its weight: ${answer.profile.weight}. `}
        {whence(answer)}, for {seconds(answer.seconds)}. <a href={link("capture", id, { q: search, zoom })}>Alone, with its tables and to compare</a>
      </p>
      {answer.profile ? <Stacks capture={answer} other="" search={search} zoom={zoom} onSearch={setSearch} onZoom={setZoom} /> : <Tables of={answer} />}
    </>
  );
}
