// What the archive holds, what the recorder could not see, and which command says why.
import type { ComponentChildren } from "preact";
import { DAY_S, type Report, lastDay, span } from "./api";
import { Copy } from "./copy";
import { length, moment, parseTime, quantity } from "./format";
import { link, rangeQuery, round } from "./route";
import { type Shown, useJson } from "./state";

interface Event {
  event: string;
  rule?: string;
  text?: string;
  armed?: string[];
  capture?: string;
  why?: string;
  seconds?: number;
  events?: number;
  file?: string;
}

interface Status {
  archive: string;
  host: string;
  kernel: string;
  span: { since: string; until: string } | null;
  frames: number;
  disk_bytes: number;
  sealed_bytes: number;
  log_bytes: number;
  captures: number;
  capture_bytes: number;
  segments: number;
  bytes_per_second: number | null;
  parts: { name: string; bytes: number }[];
  gaps: { since: string; until: string; why: string }[];
  skipped: { file: string; offset: number; why: string }[];
  sheds: number;
  recorder: { pid: number | null; trouble: string | null } | null;
  escalation: { time: string; event: Event }[];
  outputs?: Output[];
}

/** How far `mitra send` has come. */
interface Output {
  name: string;
  counts: "samples" | "records";
  sent: number;
  refused: number;
  dropped_seconds: number;
  behind_seconds: number | null;
  last_error: string | null;
}

const LINES = 12;
const PARTS = 8;
/** What was missing is looked for in the last hour: a report of more takes long. */
const HOUR_S = DAY_S / 24;

export function Recorder({ shown }: { shown: Shown }) {
  const { answer, error } = useJson<Status>("status", {});
  const { since, until } = lastDay(shown.range);
  const hour = { since: Math.max(since, until - HOUR_S), until };
  const report = useJson<Report>("report", span(hour));
  const missing = report.answer?.recorder?.unavailable;
  return (
    <>
      <div class="bar">
        <h2>Recorder</h2>
        <span class="range">what this recording holds, and what it lacks</span>
      </div>
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {answer && <Holds of={answer} />}
      <section aria-labelledby="missing">
        <h3 id="missing">What could not be seen</h3>
        {report.error && <p class="note">{report.error}</p>}
        {!missing && !report.error && <p class="note">{report.answer ? "Nothing was missing in the last hour of this window." : "looking …"}</p>}
        {missing?.length === 0 && <p class="note">Nothing was missing in the last hour of this window.</p>}
        {!!missing?.length && <Pairs rows={missing.map((one) => [one.source, one.why])} />}
        <p>What this machine lets Mitra see, and what would have to change for more, says this command on the machine itself; the server has given up the privileges that looking takes.</p>
        {["sudo mitra doctor", "sudo mitra doctor --fix-hints"].map((text) => (
          <div class="command" key={text}>
            <code>{text}</code>
            <Copy text={text} />
          </div>
        ))}
      </section>
      {answer && answer.escalation.length > 0 && <Armed of={answer} />}
    </>
  );
}

function Pairs({ rows }: { rows: [ComponentChildren, ComponentChildren][] }) {
  return (
    <dl class="pairs">
      {rows.map(([name, text], index) => (
        <div key={index}>
          <dt>{name}</dt>
          <dd>{text}</dd>
        </div>
      ))}
    </dl>
  );
}

function sent(of: Output): ComponentChildren {
  const told = [
    `${of.sent} ${of.counts} taken, ${of.refused} refused`,
    of.behind_seconds !== null && `${length(of.behind_seconds)} behind`,
    of.dropped_seconds > 0 && `${length(of.dropped_seconds)} given up`,
  ];
  return (
    <>
      {told.filter(Boolean).join(", ")}
      {of.last_error && <span class="error">; {of.last_error}</span>}
    </>
  );
}

function Holds({ of }: { of: Status }) {
  const { gaps, skipped } = of;
  const [since, until] = of.span ? [parseTime(of.span.since), parseTime(of.span.until)] : [NaN, NaN];
  const state = of.recorder ? `a recorder writes it${of.recorder.pid === null ? "" : ` (process ${of.recorder.pid})`}` : "ended";
  const rows: [string, ComponentChildren][] = [
    ["Archive", of.archive],
    ["Machine", `${of.host || "unknown"}, kernel ${of.kernel || "unknown"}`],
    ["Recorded", of.span ? `${moment(since)} to ${moment(until)} UTC (${length(until - since)}, ${of.frames} samples); ${state}` : "nothing yet"],
    ["Size", `${quantity(of.disk_bytes, "bytes")} on disk: ${quantity(of.sealed_bytes, "bytes")} in ${of.segments === 1 ? "1 segment" : `${of.segments} segments`}, ${quantity(of.log_bytes, "bytes")} in the open log${of.bytes_per_second === null ? "" : `; ${quantity(of.bytes_per_second, "bytes/s")} sealed`}`],
    ["Captures", of.captures ? <a href={link("captures")}>{`${of.captures}, ${quantity(of.capture_bytes, "bytes")}`}</a> : "none"],
    ["Largest", of.parts.slice(0, PARTS).map((one) => `${one.name} ${quantity(one.bytes, "bytes")}`).join(", ")],
    ...(of.outputs ?? []).map((one): [string, ComponentChildren] => [`Output ${one.name}`, sent(one)]),
    ["Gaps", gaps.length ? `${gaps.length}, the newest first:` : "none"],
  ];
  if (of.recorder?.trouble) rows.push(["Trouble", <span class="error">{of.recorder.trouble}</span>]);
  if (of.sheds) rows.push(["Shed", `detail was left out ${of.sheds} times to stay inside the budget`]);
  for (const one of skipped.slice(0, LINES)) rows.push(["Damaged", `${one.file} at byte ${one.offset}: ${one.why}`]);
  return (
    <section aria-label="What the archive holds">
      <Pairs rows={rows} />
      {gaps.length > 0 && (
        <ol class="gaps">
          {gaps
            .slice(-LINES)
            .toReversed()
            .map((gap) => {
              const [from, to] = [parseTime(gap.since), parseTime(gap.until)];
              const around = Math.max(60, to - from);
              return (
                <li key={gap.since}>
                  <a href={link("time", "", { ...rangeQuery({ since: from - around, until: to + around }), t: round(from) })}>{moment(from)}</a> for {length(to - from)}: {gap.why}
                </li>
              );
            })}
        </ol>
      )}
    </section>
  );
}

function words({ event }: { event: Event }): ComponentChildren {
  if (event.event === "suspicion") return `${event.rule}: ${event.text}${event.armed?.length ? `; armed ${event.armed.join(", ")}` : ""}`;
  const text = `${event.capture} for ${event.seconds?.toFixed(1)} s, ${event.why}: ${event.events} events`;
  return event.file ? <a href={link("capture", event.file.replace(/\.json\.zst$/, ""))}>{text}</a> : text;
}

function Armed({ of }: { of: Status }) {
  return (
    <section aria-labelledby="armed">
      <h3 id="armed">Suspicions and captures of the last day</h3>
      <Pairs
        rows={of.escalation
          .slice(-LINES)
          .toReversed()
          .map((one): [ComponentChildren, ComponentChildren] => [moment(parseTime(one.time)), words(one)])}
      />
      {of.escalation.length > LINES && <p class="note">{of.escalation.length - LINES} before, within that day</p>}
    </section>
  );
}
