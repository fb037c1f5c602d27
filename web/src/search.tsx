// Files and settings of the machine, from the index beside the archive: a search, and one document with its history.
import { useEffect, useState } from "preact/hooks";
import { lastDay, span, stamp } from "./api";
import { moment, parseTime, quantity, rangeText } from "./format";
import { change, link, number, rangeQuery, round, type Route } from "./route";
import { type Shown, useJson } from "./state";

interface Hit {
  host: string;
  filename: string;
  since: string;
  size: number | null;
  mtime: string | null;
}

interface Answer {
  first_day: string;
  last_day: string;
  left_out: number;
  documents: Hit[];
}

interface HistoryEvent {
  at: string;
  not_before: string | null;
  what: "new" | "changed" | "gone";
  changes: { words: string; diff: string | null }[];
}

interface Document {
  document: Record<string, unknown> | null;
  is_cut: boolean;
  history: HistoryEvent[];
  is_whole_history: boolean;
}

const EXAMPLES: [query: string, finds: string][] = [
  ["swappiness", "a word in the content"],
  ['filename:"/etc/fstab"', "one file"],
  ["filename:*nginx*", "names that contain it"],
  ["sysctl.vm.swappiness:>10", "a kernel setting by its value"],
  ["package.openssl:*", "what is installed"],
  ["mtime:>now-7d AND kind:file", "files that were written in the last week"],
  ["kind:incident", "incidents that were explained before"],
];

type When = "last" | "at" | "changed";

export function Search({ route, shown }: { route: Route; shown: Shown }) {
  const query = route.query.get("q") ?? "";
  const when = (route.query.get("when") ?? "last") as When;
  const at = number(route, "t") ?? shown.range.until;
  const limit = number(route, "limit") ?? 50;
  const [typed, type] = useState(query);
  useEffect(() => type(query), [query]);
  const scope = when === "at" ? { at: stamp(at) } : when === "changed" ? { changed: "true", ...span(lastDay(shown.range)) } : {};
  const { answer, error } = useJson<Answer>("search", { query: query || undefined, limit, ...scope });
  const submit = (event: Event) => {
    event.preventDefault();
    change(route, { q: typed, limit: undefined });
  };
  /** The state of a document that a search in the past found is that of its time. */
  const documentAt = (one: Hit) => (when === "at" ? round(at) : when === "changed" ? parseTime(one.since) : undefined);
  return (
    <>
      <div class="bar">
        <h2>Search</h2>
        <span class="range">files, settings, packages, mounts, units and past incidents, without their secrets</span>
      </div>
      <form class="bar ask" role="search" onSubmit={submit}>
        <input type="search" class="query" aria-label="Query" placeholder="words, field:value, AND, OR, NOT" maxLength={1000} spellcheck={false} value={typed} onInput={(event) => type(event.currentTarget.value)} />
        <label>
          of{" "}
          <select value={when} onChange={(event) => change(route, { when: event.currentTarget.value === "last" ? undefined : event.currentTarget.value })}>
            <option value="last">the last day in the index</option>
            <option value="at">{moment(at)}</option>
            <option value="changed">what changed in the range</option>
          </select>
        </label>
        <button type="submit">Search</button>
      </form>
      <Examples onChoose={(text) => change(route, { q: text, limit: undefined })} />
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {answer && !error && (
        <>
          <p class="note" role="status">
            {answer.documents.length + answer.left_out} documents,{" "}
            {when === "changed" ? `changed ${rangeText(lastDay(shown.range).since, shown.range.until)}` : when === "at" ? `as they were at ${moment(at)} UTC` : `as on ${answer.last_day}`}
          </p>
          {answer.documents.length > 0 && (
            <div class="scroll" tabIndex={0} role="region" aria-label="Table of documents">
              <table class="data">
                <thead>
                  <tr>
                    <th scope="col">document</th>
                    <th scope="col">host</th>
                    <th scope="col" class="num">
                      size
                    </th>
                    <th scope="col">written</th>
                    <th scope="col">in this state since</th>
                  </tr>
                </thead>
                <tbody>
                  {answer.documents.map((one) => (
                    <tr key={`${one.host} ${one.filename}`}>
                      <th scope="row" class="name">
                        <a href={link("document", one.filename, { host: one.host, at: documentAt(one), q: query })}>{one.filename}</a>
                      </th>
                      <td>{one.host}</td>
                      <td class="num">{one.size === null ? "" : quantity(one.size, "bytes")}</td>
                      <td>{one.mtime && moment(parseTime(one.mtime))}</td>
                      <td>{moment(parseTime(one.since))}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
          {answer.left_out > 0 && limit < 200 && (
            <button type="button" onClick={() => change(route, { limit: 200 }, true)}>
              {answer.left_out} more
            </button>
          )}
          {answer.left_out > 0 && limit >= 200 && <p class="note">{answer.left_out} more are not listed: ask more narrowly.</p>}
        </>
      )}
    </>
  );
}

function Examples({ onChoose }: { onChoose: (text: string) => void }) {
  return (
    <details class="notes">
      <summary>Examples</summary>
      <dl class="pairs">
        {EXAMPLES.map(([text, finds]) => (
          <div key={text}>
            <dt>
              <button type="button" onClick={() => onChoose(text)}>
                <code>{text}</code>
              </button>
            </dt>
            <dd>{finds}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

/** Shown in their own places. */
const TOLD = ["content", "filename", "host", "id", "hash"];

/** The metadata of a document in one list, with names as queries have them. */
function pairs(value: Record<string, unknown>, above = ""): [string, string][] {
  return Object.entries(value).flatMap(([key, one]): [string, string][] => {
    const name = above + key;
    if (TOLD.includes(name) || one === null || one === undefined) return [];
    if (Array.isArray(one)) return one.length ? [[name, one.join(", ")]] : [];
    if (typeof one === "object") return pairs(one as Record<string, unknown>, `${name}.`);
    return [[name, String(one)]];
  });
}

const FIRST_PAIRS = 24;

export function DocumentView({ route, shown }: { route: Route; shown: Shown }) {
  const host = route.query.get("host") ?? shown.recording.host;
  const at = number(route, "at");
  const { answer, error } = useJson<Document>("document", { host, filename: route.item, at: at === undefined ? undefined : stamp(at) });
  const [isOpen, setOpen] = useState(false);
  const about = answer?.document ? pairs(answer.document) : [];
  const content = answer?.document?.["content"];
  const back = link("search", "", { ...(shown.isLive ? {} : rangeQuery(shown.range)), q: route.query.get("q") ?? "" });
  return (
    <article class="document">
      <div class="bar">
        <h2 class="long">{route.item}</h2>
        <span class="range">
          {host}, {at === undefined ? "the last that is known" : `as it was at ${moment(at)} UTC`}
        </span>
        <span class="buttons">
          {at !== undefined && (
            <button type="button" onClick={() => change(route, { at: undefined })}>
              As it is now
            </button>
          )}
          <a class="button" href={back}>
            Search
          </a>
        </span>
      </div>
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {answer && !answer.document && <p class="note">It was not there then.</p>}
      {typeof content === "string" && (
        <section aria-label="Content">
          <pre class="content" tabIndex={0} role="region" aria-label={`Content of ${route.item}`}>
            {content}
          </pre>
          {answer?.is_cut && <p class="note">This is the first MiB of it. Whole: mitra show {host} {route.item}</p>}
        </section>
      )}
      {answer?.document && typeof content !== "string" && <p class="note">It has no content to show.</p>}
      {answer && <History events={answer.history} isWhole={answer.is_whole_history} onChoose={(time) => change(route, { at: time })} />}
      {about.length > 0 && (
        <section aria-labelledby="about">
          <h3 id="about">Fields</h3>
          <dl class="pairs">
            {(isOpen ? about : about.slice(0, FIRST_PAIRS)).map(([name, text]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{text}</dd>
              </div>
            ))}
          </dl>
          {about.length > FIRST_PAIRS && !isOpen && (
            <button type="button" onClick={() => setOpen(true)}>
              {about.length - FIRST_PAIRS} more
            </button>
          )}
        </section>
      )}
    </article>
  );
}

function History({ events, isWhole, onChoose }: { events: HistoryEvent[]; isWhole: boolean; onChoose: (time: number) => void }) {
  return (
    <section aria-labelledby="history">
      <h3 id="history">History</h3>
      {events.length === 0 && <p class="note">It has not changed since it was first read.</p>}
      <ol class="history">
        {events.map((event) => (
          <li key={event.at}>
            <button type="button" onClick={() => onChoose(parseTime(event.at))} title="Show it as it was then">
              {moment(parseTime(event.at))}
            </button>{" "}
            {event.what}
            {event.not_before && moment(parseTime(event.not_before)) !== moment(parseTime(event.at)) && <small> between then and {moment(parseTime(event.not_before))}</small>}
            {event.changes.map((one) => (
              <div key={one.words}>
                {event.what === "changed" && !one.diff && <p>{one.words}</p>}
                {one.diff && <Diff text={one.diff} at={event.at} />}
              </div>
            ))}
          </li>
        ))}
      </ol>
      {!isWhole && <p class="note">Older changes are not listed.</p>}
    </section>
  );
}

const MARKS: Record<string, string> = { "+": "plus", "-": "minus", "@": "place" };

function Diff({ text, at }: { text: string; at: string }) {
  return (
    <pre class="diff" tabIndex={0} role="region" aria-label={`Lines that differ since ${moment(parseTime(at))}`}>
      {text.trimEnd().split("\n").map((line, index) => (
        <span key={index} class={MARKS[line[0] ?? ""]}>
          {`${line}\n`}
        </span>
      ))}
    </pre>
  );
}
