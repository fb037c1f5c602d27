// One incident: what caused it, what to do, how it came about, and what it is not.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { address, type Culprit, type Evidence, type Incident, json, type Link, type Range, type Report, type Row, rowOfPid, span } from "./api";
import { CapturedMeanwhile } from "./captures";
import { compareLink } from "./compare";
import { Copy } from "./copy";
import { clock, culpritText, moment, parseTime, percent, quantity, rangeText, seconds, words } from "./format";
import { Graph } from "./graph";
import type { LaneOf } from "./lanes";
import { Lanes } from "./lanes-view";
import { Pairs } from "./pairs";
import { link, number, rangeQuery, round, type Route } from "./route";
import { type Found, type FoundIncident, type Shown, useJson } from "./state";

interface IncidentProps {
  route: Route;
  shown: Shown;
  found: Found | undefined;
  theme: string;
}

/** Time before and after the incident that its plots show: half as long as it lasted. */
const AROUND_SHARE = 0.5;
const AROUND_MIN_S = 15;

/** Onsets of one incident differ by less when it is explained again, with more of it recorded. */
const SAME_ONSET_S = 5;
/** While it goes on it is explained again so often; also when the server says that the list of incidents is another. */
const AGAIN_S = 20;

/** The incident of a link: the one with that onset, or with that number. Numbers change while a recording grows. */
function lineOf(route: Route, found: Found | undefined): FoundIncident | undefined {
  const onset = number(route, "onset");
  const away = (one: FoundIncident) => Math.abs(parseTime(one.since) - (onset ?? NaN));
  const nearest = found?.incidents.filter((one) => away(one) <= SAME_ONSET_S).sort((a, b) => away(a) - away(b))[0];
  return nearest ?? found?.incidents.find((one) => String(one.n) === route.item);
}

/** While a recorder is at work its end moves each second; what is asked for moves in steps. */
function growing(shown: Shown): number {
  const { until } = shown.whole;
  return shown.recording.is_live ? Math.ceil(until / AGAIN_S) * AGAIN_S : until;
}

export function IncidentView({ route, shown, found, theme }: IncidentProps) {
  const line = lineOf(route, found);
  const query = { ...span(shown.range), incident: line?.n ?? Number(route.item) };
  // An incident that is over stays as it is, and so does a range that has ended before the recording.
  const grows = shown.recording.is_live && !line?.until && shown.range.until >= shown.whole.until;
  const { answer, error } = useJson<Report>("report", query, grows ? `${growing(shown)} ${found?.changed ?? 0}` : "");
  const incident = answer?.incidents[0];
  if (error && !answer) {
    return (
      <p class="error" role="alert">
        {error}
      </p>
    );
  }
  if (!answer) return <p class="note">explaining …</p>;
  if (!incident) return <p class="note">There is no incident {route.item} in this time.</p>;
  const since = parseTime(incident.onset);
  // What is told of one that goes on is of the time that was explained.
  const until = parseTime(incident.end ?? answer.window.until);
  const around = Math.max((until - since) * AROUND_SHARE, AROUND_MIN_S);
  const window = { since: Math.max(shown.whole.since, since - around), until: Math.min(growing(shown), incident.end ? until + around : Infinity) };
  return (
    <article class="incident">
      <div class="bar">
        <h2>
          Incident {query.incident} <span class="range">{rangeText(since, until)}</span>
        </h2>
        <span class="buttons">
          <a class="button" href={link("time", "", { ...rangeQuery(window), t: round(since) })}>
            On the time line
          </a>
          <a class="button" href={link("processes", "", { ...rangeQuery(window), t: round(since + Math.min(2, (until - since) / 2)) })}>
            Processes
          </a>
          {since - shown.whole.since >= 1 && (
            <a class="button" href={compareLink({ since, until }, { since: Math.max(shown.whole.since, since - (until - since)), until: since })}>
              Compare with before
            </a>
          )}
          <a class="button" href={address("report.html", query)}>
            Report as a page
          </a>
          <a class="button" href={address("report.html", query)} download={`mitra-${shown.recording.host}-${incident.onset ?? "incident"}.html`.replaceAll(":", "")}>
            Download
          </a>
        </span>
      </div>
      <FirstScreen incident={incident} title={line?.root?.title} since={since} until={until} />
      <Chain incident={incident} since={since} until={until} window={window} shown={shown} theme={theme} />
      <CapturedMeanwhile window={window} />
      <Remedies incident={incident} />
      <OtherRoots incident={incident} />
      <Others incident={incident} healthy={answer.healthy ?? []} />
    </article>
  );
}

function FirstScreen({ incident, title, since, until }: { incident: Incident; title: string | undefined; since: number; until: number }) {
  const root = incident.root_cause;
  const first = incident.remedies[0];
  const lost = incident.lost_task_seconds;
  return (
    <dl class="first">
      <dt>Root cause</dt>
      <dd>
        {root ? (
          <>
            <strong class="cause">
              {root.unexplained && "not found; seen is: "}
              {title ?? words(root.condition)}
            </strong>{" "}
            {!root.unexplained && <span class="sure">{percent(root.confidence)} sure</span>}
            <p>{root.statement}</p>
            {root.remarks?.map((remark) => (
              <p key={remark} class="note">
                {remark}
              </p>
            ))}
          </>
        ) : (
          "No cause can be named."
        )}
      </dd>
      {root?.culprit && (
        <>
          <dt>Caused by</dt>
          <dd>{culpritText(root.culprit)}</dd>
        </>
      )}
      {lost != null && (
        <>
          <dt>Cost</dt>
          <dd>
            {quantity(lost, "")} task-seconds lost, on average {quantity(lost / Math.max(until - since, 1), "")} tasks stood still
            {root?.share != null && `; ${percent(root.share)} explained`}
          </dd>
        </>
      )}
      {incident.client_wait_seconds != null && (
        <>
          <dt>Clients</dt>
          <dd>waited {seconds(incident.client_wait_seconds)} beyond the usual</dd>
        </>
      )}
      {first && (
        <>
          <dt>Do</dt>
          <dd>
            {first.do}
            <Command text={first.command} />
            {first.risk && <p class="note">risk: {first.risk}</p>}
          </dd>
        </>
      )}
      <dt>Seen</dt>
      <dd>
        since {moment(since)} UTC{incident.end ? `, for ${seconds(until - since)}` : ", and it goes on"}
      </dd>
    </dl>
  );
}

function Command({ text }: { text: string | undefined }) {
  if (!text) return null;
  return (
    <div class="command">
      <code>{text}</code>
      <Copy text={text} />
    </div>
  );
}

interface ChainProps {
  incident: Incident;
  since: number;
  until: number;
  window: Range;
  shown: Shown;
  theme: string;
}

function Chain({ incident, since, until, window, shown, theme }: ChainProps) {
  const [open, setOpen] = useState<number | null>(0);
  const onsets = useMemo(() => incident.chain.map((one) => parseTime(one.onset)).filter(Number.isFinite), [incident]);
  const length = Math.max(until - since, 0.001);
  const list = useRef<HTMLOListElement>(null);
  const isAsked = useRef(false);
  const reveal = (index: number) => {
    const button = list.current?.children[index]?.querySelector("button");
    button?.focus({ preventScroll: true });
    button?.scrollIntoView();
  };
  // What was open above it is gone by then.
  useEffect(() => {
    if (isAsked.current && open !== null) reveal(open);
    isAsked.current = false;
  }, [open]);
  const show = (index: number) => {
    if (open === index) return reveal(index);
    isAsked.current = true;
    setOpen(index);
  };
  return (
    <section aria-labelledby="chain">
      <h3 id="chain">How it came about</h3>
      <Graph incident={incident} open={open} onOpen={show} />
      <ol class="chain" ref={list}>
        {incident.chain.map((one, index) => {
          const lag = one.lag_s ?? null;
          const left = Math.max(0, Math.min(0.99, (lag ?? 0) / length));
          return (
            <li key={one.condition} class={index === 0 ? "root" : incident.symptoms.includes(one.condition) ? "symptom" : ""}>
              <button type="button" aria-expanded={open === index} onClick={() => setOpen(open === index ? null : index)}>
                <span class="lag">
                  {clock(parseTime(one.onset))}
                  <small>{index === 0 ? "root" : lag === null ? "" : `+${seconds(lag)}`}</small>
                </span>
                <span class="dot" aria-hidden="true" />
                <span class="says">
                  <strong>{words(one.condition)}</strong>
                  <small>{one.statement}</small>
                </span>
                <span class="extent" aria-hidden="true">
                  {lag !== null && <i style={{ left: `${left * 100}%` }} />}
                </span>
              </button>
              {open === index && <EvidenceOf of={one} onsets={onsets} {...{ incident, window, shown, theme }} />}
            </li>
          );
        })}
      </ol>
      {incident.symptoms.length > 0 && <p class="note">noticed as {incident.symptoms.map(words).join(", ")}</p>}
    </section>
  );
}

interface EvidenceProps {
  of: Link;
  onsets: number[];
  incident: Incident;
  window: Range;
  shown: Shown;
  theme: string;
}

function EvidenceOf({ of, onsets, incident, window, shown, theme }: EvidenceProps) {
  const lanes = useEvidenceLanes(of, incident.root_cause?.culprit ?? undefined, window);
  const marks = useMemo(() => [{ since: parseTime(incident.onset), until: incident.end ? parseTime(incident.end) : window.until }], [incident]);
  return (
    <div class="evidence">
      {of.remarks?.map((remark) => (
        <p key={remark} class="note">
          {remark}
        </p>
      ))}
      <div class="scroll" tabIndex={0} role="region" aria-label={`Evidence of ${words(of.condition)}`}>
        <table class="data">
          <thead>
            <tr>
              <th scope="col">evidence</th>
              <th scope="col">of</th>
              <th scope="col" class="num">
                before
              </th>
              <th scope="col" class="num">
                during
              </th>
              <th scope="col" class="num">
                peak
              </th>
            </tr>
          </thead>
          <tbody>
            {of.evidence.map((one) => (
              <tr key={`${one.metric} ${one.entity}`}>
                <th scope="row">
                  <code>{one.metric}</code>
                </th>
                <td>{one.entity || "the machine"}</td>
                <td class="num">{quantity(one.before, one.unit)}</td>
                <td class="num">{quantity(one.during, one.unit)}</td>
                <td class="num">{quantity(one.peak, one.unit)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {lanes.length > 0 && <Lanes lanes={lanes} range={window} interval_s={shown.recording.interval_s} theme={theme} group="evidence" isProcess marks={marks} onsets={onsets} />}
      {lanes.length > 0 && <p class="note">dashed: onsets of the links of the chain; shaded: the incident</p>}
    </div>
  );
}

/** Evidence names the thing as a person does; the recording has the rows of its tables. */
async function rowOf(evidence: Evidence, at: number, culprit: Culprit | undefined, window: Range, signal: AbortSignal): Promise<string | undefined> {
  if (!evidence.entity) return "";
  const isCulprit = culprit?.process === evidence.entity && culprit.pid !== undefined;
  // Its first thread may do nothing itself.
  const own = isCulprit && evidence.metric.startsWith("task.") && Number.isFinite(at) ? await rowOfPid(culprit.pid!, at, signal) : undefined;
  if (own) return own;
  const rows = await json<Row[]>("rows", { metric: evidence.metric, limit: 100, ...span(window) }, signal);
  const tests: ((row: Row) => boolean)[] = [
    (row) => row.row === evidence.entity || row.label === evidence.entity,
    (row) => isCulprit && row.row.startsWith(`${culprit?.pid}@`),
    (row) => row.label.startsWith(`${evidence.entity} `),
  ];
  for (const test of isCulprit ? tests.slice(1) : tests) {
    const row = rows.find(test);
    if (row) return row.row;
  }
  return undefined;
}

const UNITS_OF_LANES: Record<string, string> = { "": "Count", bytes: "Bytes", "bytes/s": "Bytes per second", "s/s": "Seconds per second", s: "Time", "1/s": "Events per second", "pages/s": "Pages per second", pages: "Pages" };

function useEvidenceLanes(of: Link, culprit: Culprit | undefined, window: Range): LaneOf[] {
  const [lanes, set] = useState<LaneOf[]>([]);
  useEffect(() => {
    const abort = new AbortController();
    const asked = of.evidence.filter((one) => !one.metric.startsWith("event."));
    const found = asked.map((one) => rowOf(one, parseTime(of.onset) + 1, culprit, window, abort.signal).catch(() => undefined));
    void Promise.all(found).then((rows) => {
      if (abort.signal.aborted) return;
      const byUnit = new Map<string, LaneOf>();
      asked.forEach((one, index) => {
        const row = rows[index];
        if (row === undefined) return;
        const lane = byUnit.get(one.unit) ?? { id: one.unit || "count", title: UNITS_OF_LANES[one.unit] ?? one.unit, about: "Evidence in this unit.", unit: one.unit, lines: [] };
        lane.lines.push({ label: one.entity ? `${one.metric} ${one.entity}` : one.metric, metric: one.metric, row });
        byUnit.set(one.unit, lane);
      });
      set([...byUnit.values()]);
    });
    return () => abort.abort();
  }, [of, window.since, window.until]);
  return lanes;
}

function Remedies({ incident }: { incident: Incident }) {
  if (incident.remedies.length === 0 && incident.next.length === 0) return null;
  return (
    <section aria-labelledby="remedies">
      <h3 id="remedies">What to do</h3>
      <ul class="actions">
        {incident.remedies.map((one) => (
          <li key={one.do}>
            {one.do}
            <Command text={one.command} />
            {one.verify && <p class="note">verify: {one.verify}</p>}
            {one.risk && <p class="note">risk: {one.risk}</p>}
          </li>
        ))}
        {incident.next.map((one) => (
          <li key={one.measure}>
            to be surer, measure {one.measure}
            <Command text={one.command} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function OtherRoots({ incident }: { incident: Incident }) {
  if (incident.other_roots.length === 0) return null;
  return (
    <section aria-labelledby="others">
      <h3 id="others">What else went wrong</h3>
      <ul class="actions">
        {incident.other_roots.map((one) => (
          <li key={one.condition}>
            <strong>{words(one.condition)}</strong> <span class="sure">{percent(one.confidence)} sure</span>
            {one.share != null && <span class="note"> {percent(one.share)} of the lost time</span>}
            <p>{one.statement}</p>
            {one.culprit && <p class="note">{culpritText(one.culprit)}</p>}
            {one.remarks?.map((remark) => (
              <p key={remark} class="note">
                {remark}
              </p>
            ))}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Others({ incident, healthy }: { incident: Incident; healthy: string[] }) {
  return (
    <>
      {!!incident.changes?.length && (
        <Pairs title="What was changed before" rows={incident.changes.map((one) => [`${one.kind} ${one.name}`, `${one.at ? moment(parseTime(one.at)) : ""} ${one.from ?? ""} → ${one.to ?? ""}`])} />
      )}
      <Pairs title="What it is not" rows={incident.ruled_out.map((one) => [words(one.condition), one.because])} />
      <Pairs title="What could not be told" rows={incident.unknown.map((one) => [words(one.condition), one.needs ? `needs ${one.needs}` : ""])} />
      {healthy.length > 0 && <p class="note">Healthy: {healthy.join(", ")}</p>}
    </>
  );
}
