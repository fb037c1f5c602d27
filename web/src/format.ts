// Numbers and times as people read them.

const PREFIXES = ["", "k", "M", "G", "T", "P"];

function digits(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100) return value.toFixed(0);
  if (size >= 0.01) return value.toFixed(size >= 10 ? 1 : 2).replace(/\.0+$/, "");
  return value.toPrecision(1);
}

function scaled(value: number, unit: string): string {
  let power = 0;
  let size = Math.abs(value);
  while (size >= 999.5 && power < PREFIXES.length - 1) {
    size /= 1000;
    power += 1;
  }
  const gap = power || /^[a-zA-Z]/.test(unit) ? " " : "";
  return `${digits(value / 1000 ** power)}${gap}${PREFIXES[power]}${unit}`.trimEnd();
}

export function seconds(value: number): string {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${digits(value * 1e6)} µs`;
  if (size < 1) return `${digits(value * 1e3)} ms`;
  if (size < 120) return `${digits(value)} s`;
  if (size < 7200) return `${digits(value / 60)} min`;
  if (size < 172800) return `${digits(value / 3600)} h`;
  return `${digits(value / 86400)} d`;
}

/** `pages`, `faults/s`. */
const COUNTED = /^[a-z]{4,}(\/s)?$/;

/** A value in one of the units of the metrics, or in what is counted; a dash where nothing was measured. */
export function quantity(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  switch (unit) {
    case "bytes":
      return scaled(value, "B");
    case "bytes/s":
      return scaled(value, "B/s");
    case "1/s":
      return scaled(value, "/s");
    case "s":
      return seconds(value);
    case "s/s":
      return `${digits(value)} s/s`;
    case "share":
      return `${digits(value * 100)} %`;
    default:
      // What is counted has no prefix: 1.2k faults.
      return COUNTED.test(unit) ? `${scaled(value, "")} ${unit}` : scaled(value, unit);
  }
}

/** The same where the unit stands in the heading: with the prefix, and with units that are read as one word with it. */
export const figure = (value: number | null | undefined, unit: string): string => quantity(value, ["pages", "pages/s"].includes(unit) ? "" : unit).replace(/ s\/s$/, "");

export const percent = (share: number): string => `${Math.round(share * 100)} %`;

/** Ids of conditions are words with hyphens. */
export const words = (id: string): string => id.replaceAll("-", " ");

export const parseTime = (text: string | null | undefined): number => (text ? Date.parse(text) / 1000 : NaN);

const two = (value: number): string => String(Math.floor(value)).padStart(2, "0");

/** Parts of a moment in UTC. */
function parts(at: number): { day: string; minute: string; second: string } {
  const date = new Date(at * 1000);
  return {
    day: `${date.getUTCFullYear()}-${two(date.getUTCMonth() + 1)}-${two(date.getUTCDate())}`,
    minute: `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`,
    second: two(date.getUTCSeconds()),
  };
}

export function clock(at: number): string {
  if (!Number.isFinite(at)) return "–";
  const { minute, second } = parts(at);
  return `${minute}:${second}`;
}

export function moment(at: number): string {
  return Number.isFinite(at) ? `${parts(at).day} ${clock(at)}` : "–";
}

export function rangeText(since: number, until: number): string {
  const sameDay = parts(since).day === parts(until).day;
  return `${moment(since)} to ${sameDay ? clock(until) : moment(until)} UTC`;
}

/** A label of the time axis: the day where it changes, seconds only where they differ. */
export function tick(at: number, previous: number | undefined, step: number): string {
  const { day, minute, second } = parts(at);
  if (step >= 86400) return day.slice(5);
  if (previous !== undefined && parts(previous).day !== day) return day.slice(5);
  if (step < 1) return `${minute}:${(at % 60).toFixed(2).padStart(5, "0")}`;
  return step < 60 ? `${minute}:${second}` : minute;
}

/** The length of a window for a button or a heading. */
export function length(range: number): string {
  for (const [name, size] of [["d", 86400], ["h", 3600], ["min", 60]] as const) {
    if (range >= size) return `${Math.round((range / size) * 10) / 10} ${name}`;
  }
  return `${digits(range)} s`;
}

export function culpritText(culprit: Record<string, string | number | undefined> | null | undefined): string {
  if (!culprit) return "";
  const { process, pid, how, cgroup, cgroup_name: group, ...others } = culprit;
  const text: string[] = [];
  if (process !== undefined) text.push(pid === undefined ? String(process) : `${process} (pid ${pid})`);
  else if (pid !== undefined) text.push(`pid ${pid}`);
  if (group !== undefined) text.push(String(group));
  else if (cgroup !== undefined) text.push(`cgroup ${cgroup}`);
  for (const [key, value] of Object.entries(others)) if (value !== undefined && value !== null) text.push(`${key} ${value}`);
  const names = text.join(", ");
  return names && how ? `${names} (${how === "near" ? "only near" : how})` : names;
}
