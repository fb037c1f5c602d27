// Processes as top would have shown them in one second, and the life of one of them.
import { useEffect, useMemo, useState } from "preact/hooks";
import { type Cgroup, type Ended, type Process, type Range, rowOfPid, stamp, type Task } from "./api";
import { Cgroups, isInside } from "./cgroups";
import { clock, length, moment, parseTime, quantity, rangeText } from "./format";
import { Gestures } from "./gestures";
import { Lanes } from "./lanes-view";
import { life } from "./lanes";
import { change, link, number, rangeQuery, round, type Route } from "./route";
import { type Column, compare, orderOf, SortedHead } from "./sorted";
import { type Shown, useJson } from "./state";
import { scale, zoomTo } from "./window";

const COLUMNS: Column[] = [
  { key: "pid", title: "pid" },
  { key: "comm", title: "command", isText: true },
  { key: "state", title: "state", isText: true },
  { key: "cpu", title: "CPU", unit: "share" },
  { key: "lost", title: "lost time", unit: "share" },
  { key: "rss", title: "memory", unit: "bytes" },
  { key: "read", title: "read", unit: "bytes/s" },
  { key: "written", title: "written", unit: "bytes/s" },
  { key: "run_delay", title: "waits for CPU", unit: "share" },
  { key: "blkio_delay", title: "waits for I/O", unit: "share" },
  { key: "majflt", title: "major faults", unit: "1/s" },
  { key: "threads", title: "threads" },
  { key: "cgroup", title: "cgroup", isText: true },
];
/** More rows nobody reads, and a browser draws them slowly. */
const FIRST_ROWS = 300;

/** A kernel stack in a line, innermost first. */
const stack = (text: string): string => text.replaceAll(";", " < ");

interface Placed {
  process: Process;
  depth: number;
}

function asTree(processes: Process[]): Placed[] {
  const known = new Set(processes.map((one) => one.pid));
  const children = new Map<number, Process[]>();
  for (const one of processes) {
    const parent = known.has(one.ppid) && one.ppid !== one.pid ? one.ppid : -1;
    children.set(parent, [...(children.get(parent) ?? []), one]);
  }
  const placed: Placed[] = [];
  const seen = new Set<number>();
  const waiting: Placed[] = (children.get(-1) ?? []).map((process) => ({ process, depth: 0 })).reverse();
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    if (seen.has(next.process.pid)) continue;
    seen.add(next.process.pid);
    placed.push(next);
    const below = children.get(next.process.pid) ?? [];
    for (const process of below.toReversed()) waiting.push({ process, depth: next.depth + 1 });
  }
  return placed;
}

interface Answer {
  at: string;
  processes?: Process[];
  cgroups?: Cgroup[];
  ended?: Ended[];
  ended_left_out?: number;
}

export function Processes({ route, shown }: { route: Route; shown: Shown }) {
  const at = number(route, "t") ?? Math.min(shown.range.until, shown.whole.until);
  const order = orderOf(route, COLUMNS);
  const filter = route.query.get("q") ?? "";
  const isTree = route.query.get("tree") === "1";
  const isByGroup = route.query.get("by") === "cgroup";
  const group = route.query.get("group");
  const { answer, error } = useJson<Answer>(isByGroup ? "cgroups" : "processes", { at: stamp(at) });
  const [isWhole, setWhole] = useState(false);
  const placed = useMemo(() => {
    const needle = filter.toLowerCase();
    const isMeant = (one: Process) => group === null || isInside(one.cgroup, group);
    const matches = (one: Process) => [one.pid, one.comm, one.cmdline, one.cgroup, one.cgroup_name].some((text) => String(text ?? "").toLowerCase().includes(needle));
    const meant = (answer?.processes ?? []).filter((one) => isMeant(one) && matches(one));
    const sorted = meant.sort((a, b) => compare(a, b, order) || a.pid - b.pid);
    return isTree ? asTree(sorted) : sorted.map((process) => ({ process, depth: 0 }));
  }, [answer, filter, group, order.key, order.isDescending, isTree]);
  const step = (by: number) => change(route, { t: round(at + by) }, true);
  const rows = isWhole ? placed : placed.slice(0, FIRST_ROWS);
  return (
    <>
      <div class="bar">
        <h2>{isByGroup ? "Cgroups" : "Processes"}</h2>
        <span class="range">at {moment(answer ? parseTime(answer.at) : at)} UTC</span>
        <span class="buttons" role="group" aria-label="Moment">
          {[-10, -1, 1, 10].map((by) => (
            <button type="button" key={by} onClick={() => step(by)}>
              {by > 0 ? "+" : "−"}
              {Math.abs(by)} s
            </button>
          ))}
        </span>
        <input type="search" placeholder="filter" aria-label="Filter by pid, name, command line or cgroup" value={filter} onInput={(event) => change(route, { q: event.currentTarget.value }, true)} />
        <span class="buttons" role="group" aria-label="Show">
          {["processes", "cgroups"].map((name) => (
            <button type="button" key={name} aria-pressed={isByGroup === (name === "cgroups")} onClick={() => change(route, { by: name === "cgroups" && "cgroup", group: undefined })}>
              {name}
            </button>
          ))}
        </span>
        {!isByGroup && (
          <label class="check">
            <input type="checkbox" checked={isTree} onChange={() => change(route, { tree: !isTree }, true)} /> tree
          </label>
        )}
        <a class="button" href={link("time", "", { ...rangeQuery(shown.range), t: round(at) })}>
          Time line
        </a>
      </div>
      {error && (
        <p class="error" role="alert">
          {error}
        </p>
      )}
      {isByGroup ? (
        <Cgroups groups={answer?.cgroups ?? NO_GROUPS} at={at} filter={filter} route={route} shown={shown} />
      ) : (
        <>
          {group !== null && <OfGroup group={group} processes={answer?.processes ?? []} route={route} />}
          <div class="scroll" tabIndex={0} role="region" aria-label="Table of processes">
            <table class="data processes">
              <caption class="unseen">Processes at {clock(at)}</caption>
              <SortedHead columns={COLUMNS} order={order} route={route} />
              <tbody>
                {rows.map(({ process, depth }) => (
                  <tr key={process.pid}>
                    {COLUMNS.map((column) => (
                      <Cell key={column.key} column={column} process={process} depth={depth} at={at} shown={shown} />
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {answer && <p class="note">{placed.length} processes</p>}
          {placed.length > rows.length && (
            <button type="button" onClick={() => setWhole(true)}>
              Show all
            </button>
          )}
        </>
      )}
      {!!answer?.ended?.length && group === null && <EndedTable rows={answer.ended} leftOut={answer.ended_left_out ?? 0} />}
    </>
  );
}

const NO_GROUPS: Cgroup[] = [];

/** Whose processes are shown, and the way to all of them. */
function OfGroup({ group, processes, route }: { group: string; processes: Process[]; route: Route }) {
  const name = processes.find((one) => one.cgroup === group)?.cgroup_name;
  return (
    <p class="bar">
      <span>
        in {name ?? group} {name && <small>{group}</small>}
      </span>
      <button type="button" onClick={() => change(route, { group: undefined })}>
        All processes
      </button>
    </p>
  );
}

const ENDED_COLUMNS: [key: keyof Ended, title: string, unit: string][] = [
  ["count", "how many", ""],
  ["failed", "failed", ""],
  ["ppid", "parent", ""],
  ["last_pid", "last pid", ""],
  ["cpu", "CPU", "share"],
  ["run_delay", "waited for CPU", "share"],
  ["read", "read", "bytes/s"],
  ["written", "written", "bytes/s"],
];
const IDS: (keyof Ended)[] = ["ppid", "last_pid"];

/** Those that ended since the sample before, which no table of living ones has. */
function EndedTable({ rows, leftOut }: { rows: Ended[]; leftOut: number }) {
  return (
    <section aria-labelledby="ended">
      <h3 id="ended">Ended since the sample before</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of processes that ended">
        <table class="data">
          <thead>
            <tr>
              <th scope="col">command</th>
              {ENDED_COLUMNS.map(([key, title]) => (
                <th key={key} scope="col" class="num">
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((one) => (
              <tr key={`${one.ppid} ${one.comm}`}>
                <th scope="row">{one.comm}</th>
                {ENDED_COLUMNS.map(([key, , unit]) => (
                  <td key={key} class="num">
                    {IDS.includes(key) ? (one[key] ?? "–") : quantity(one[key] as number | null, unit)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {leftOut > 0 && <p class="note">{leftOut} more names are left out.</p>}
    </section>
  );
}

function Cell({ column, process, depth, at, shown }: { column: Column; process: Process; depth: number; at: number; shown: Shown }) {
  const value = process[column.key];
  if (column.key === "comm") {
    const query = { ...rangeQuery(shown.range), t: round(at), name: process.comm };
    return (
      <th scope="row" class="name" title={process.cmdline ?? ""} style={{ "--indent": `${8 + Math.min(depth, 12) * 12}px` }}>
        <a href={link("process", process.row ?? String(process.pid), query)}>{process.comm}</a>
        {process.cmdline && process.cmdline !== process.comm && <small> {process.cmdline}</small>}
      </th>
    );
  }
  if (column.key === "state") {
    const [waits] = process.waits_in ?? [];
    return (
      <td class={waits ? "long" : ""} title={process.waits_in?.map(stack).join("\n") ?? ""}>
        {process.state}
        {waits && <small> in {stack(waits)}</small>}
      </td>
    );
  }
  if (column.key === "cgroup") {
    return (
      <td class="long" title={process.cgroup ?? ""}>
        {process.cgroup_name ?? process.cgroup}
        {process.cgroup_name && <small> {process.cgroup}</small>}
      </td>
    );
  }
  if (column.key === "pid") return <td class="num">{process.pid}</td>;
  const isIdle = !value;
  return <td class={`num ${isIdle ? "idle" : ""}`}>{quantity(value as number | null | undefined, column.unit ?? "")}</td>;
}

export function ProcessLife({ route, shown, theme }: { route: Route; shown: Shown; theme: string }) {
  const at = number(route, "t");
  const seenAt = at ?? Math.min(shown.range.until, shown.whole.until);
  const row = useRow(route.item, seenAt);
  // One thread has its process beside it in the address.
  const isProcess = !route.query.has("pid");
  const lanes = useMemo(() => life(row ?? ""), [row]);
  const [held, hold] = useState<Range>();
  const { since, until } = held ?? shown.range;
  return (
    <>
      <div class="bar">
        <h2>
          {route.query.get("name") || "Process"} <small>{titleOf(route)}</small>
        </h2>
        <span class="range">
          {rangeText(since, until)} <small>({length(until - since)})</small>
        </span>
        <span class="buttons" role="group" aria-label="Window">
          <button type="button" aria-label="Zoom in" onClick={() => scale(route, shown, 0.5, at)}>
            +
          </button>
          <button type="button" aria-label="Zoom out" onClick={() => scale(route, shown, 2)}>
            −
          </button>
          <button type="button" onClick={() => zoomTo(route, shown, shown.whole)}>
            all
          </button>
          <a class="button" href={link("processes", "", { ...rangeQuery(shown.range), t: at })}>
            Processes
          </a>
        </span>
      </div>
      {row === null ? (
        <p class="note">It was not there then.</p>
      ) : (
        row && (
          <Gestures route={route} shown={shown} onHold={hold}>
            <Lanes
              lanes={lanes}
              range={shown.range}
              drawn={held ?? shown.range}
              interval_s={shown.recording.interval_s}
              theme={theme}
              group="life"
              isProcess={isProcess}
              moment={at}
              onZoom={(zoomed) => zoomTo(route, shown, zoomed)}
              onMoment={(moment) => change(route, { t: round(moment) }, true)}
            />
          </Gestures>
        )
      )}
      {row && <Threads row={row} at={seenAt} route={route} />}
    </>
  );
}

/** The threads of the process that a row is of. The plots above are of one of them, or of all. */
function Threads({ row, at, route }: { row: string; at: number; route: Route }) {
  const pid = route.query.get("pid") ?? row.split("@")[0];
  const { answer } = useJson<Answer>("processes", { at: stamp(at), pid });
  const process = answer?.processes?.[0];
  const tasks = process?.tasks;
  if (!tasks) return null;
  const isOne = route.query.has("pid");
  const query = Object.fromEntries(route.query);
  const cell = (value: number | null) => <td class={`num ${value ? "" : "idle"}`}>{quantity(value, "share")}</td>;
  return (
    <section aria-labelledby="threads">
      <h3 id="threads">{tasks.length === 1 ? "One thread" : `${tasks.length} threads, ${isOne ? "one of which is" : "which together are"} shown above`}</h3>
      {isOne && (
        <p>
          <a class="button" href={link("process", process.row, { ...query, pid: undefined, name: process.comm })}>
            All threads of {process.comm}
          </a>
        </p>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of threads">
        <table class="data">
          <thead>
            <tr>
              <th scope="col" class="num">
                thread
              </th>
              <th scope="col">name</th>
              <th scope="col">state</th>
              <th scope="col" class="num">
                CPU
              </th>
              <th scope="col" class="num">
                waits for CPU
              </th>
              <th scope="col" class="num">
                waits for I/O
              </th>
              <th scope="col">waits in</th>
            </tr>
          </thead>
          <tbody>
            {tasks.map((task: Task) => (
              <tr key={task.row}>
                <td class="num">{task.tid}</td>
                <th scope="row">
                  <a href={link("process", task.row, { ...query, pid, name: task.comm ?? "" })} aria-current={isOne && task.row === row ? "true" : undefined}>
                    {task.comm}
                  </a>
                </th>
                <td>{task.state}</td>
                {cell(task.cpu)}
                {cell(task.run_delay)}
                {cell(task.blkio_delay)}
                <td class="wide">{task.waits_in && stack(task.waits_in)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** A thread has an id of its own beside that of its process. */
function titleOf(route: Route): string {
  const [id, pid] = [route.item.split("@")[0], route.query.get("pid")];
  return pid && pid !== id ? `thread ${id} of pid ${pid}` : `pid ${id}`;
}

/** The row of a process id: undefined while it is looked for, null where there is none. */
function useRow(item: string, at: number): string | null | undefined {
  const [row, set] = useState<string | null | undefined>(item.includes("@") ? item : undefined);
  useEffect(() => {
    if (item.includes("@")) return set(item);
    const abort = new AbortController();
    rowOfPid(item, at, abort.signal).then(
      (found) => set(found ?? null),
      () => undefined,
    );
    return () => abort.abort();
  }, [item, at]);
  return row;
}
