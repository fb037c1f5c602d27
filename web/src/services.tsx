// What services did in the window, and who calls whom.
import { lastDay, span } from "./api";
import { quantity, rangeText } from "./format";
import { type Shown, useJson } from "./state";

interface Service {
  address: string;
  name: string;
  pid?: number;
  cgroup?: string;
  calls?: string[];
  [column: string]: unknown;
}

interface Answer {
  services: Service[];
  dependencies?: Service[];
}

const COLUMNS: [key: string, title: string, unit: string][] = [
  ["requests", "requests", "1/s"],
  ["latency_p50", "p50", "s"],
  ["latency_p99", "p99", "s"],
  ["latency_max", "max", "s"],
  ["waiting", "clients wait", "s/s"],
  ["open", "open", ""],
  ["unanswered", "unanswered", "1/s"],
  ["resets", "resets", "1/s"],
  ["server_errors", "server errors", "1/s"],
  ["client_errors", "client errors", "1/s"],
  ["connections", "connections", "1/s"],
  ["connect_failed", "failed to connect", "1/s"],
  ["sent_bytes", "sent", "bytes/s"],
];

export function Services({ shown }: { shown: Shown }) {
  const range = lastDay(shown.range);
  const { answer, error } = useJson<Answer>("services", span(range));
  return (
    <>
      <div class="bar">
        <h2>Services</h2>
        <span class="range">{rangeText(range.since, range.until)}</span>
      </div>
      {error && <p class="note">{error}</p>}
      {answer && <Table title="Services of this machine" rows={answer.services} />}
      {!!answer?.dependencies?.length && <Table title="What processes call" rows={answer.dependencies} />}
    </>
  );
}

function Table({ title, rows }: { title: string; rows: Service[] }) {
  if (rows.length === 0) return <p class="note">{title}: none was seen.</p>;
  const columns = COLUMNS.filter(([key]) => rows.some((row) => typeof row[key] === "number"));
  const hasCalls = rows.some((row) => row.calls);
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Table: ${title}`}>
        <table class="data">
          <thead>
            <tr>
              <th scope="col">service</th>
              <th scope="col">address</th>
              {columns.map(([key, name]) => (
                <th key={key} scope="col" class="num">
                  {name}
                </th>
              ))}
              {hasCalls && <th scope="col">calls</th>}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, index) => (
              <tr key={index}>
                <th scope="row">
                  {row.name}
                  {row.pid !== undefined && <small> pid {row.pid}</small>}
                </th>
                <td class="long">{row.address}</td>
                {columns.map(([key, , unit]) => (
                  <td key={key} class="num">
                    {quantity(row[key] as number | undefined, unit)}
                  </td>
                ))}
                {hasCalls && <td class="long">{row.calls?.join(", ")}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
