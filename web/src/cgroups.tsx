// Cgroups at one moment: units, slices, containers and pods, each with those below it.
import { useMemo } from "preact/hooks";
import type { Cgroup } from "./api";
import { clock, quantity } from "./format";
import { link, rangeQuery, round, type Route } from "./route";
import { type Column, compare, orderOf, SortedHead } from "./sorted";
import type { Shown } from "./state";

const COLUMNS: Column[] = [
  { key: "cgroup", title: "cgroup", isText: true },
  { key: "cpu", title: "CPU", unit: "share" },
  { key: "lost", title: "lost time", unit: "share" },
  { key: "memory", title: "memory", unit: "bytes" },
  { key: "memory_max", title: "limit", unit: "bytes" },
  { key: "read", title: "read", unit: "bytes/s" },
  { key: "written", title: "written", unit: "bytes/s" },
  { key: "throttled", title: "throttled", unit: "share" },
  { key: "cpu_some", title: "waits for CPU", unit: "share" },
  { key: "io_some", title: "waits for I/O", unit: "share" },
  { key: "memory_some", title: "waits for memory", unit: "share" },
  { key: "tasks", title: "tasks" },
  { key: "processes", title: "processes" },
];

/** Whether a cgroup is another one or lies below it. */
export const isInside = (cgroup: string | null | undefined, group: string): boolean =>
  cgroup != null && (group === "/" || cgroup === group || cgroup.startsWith(`${group}/`));

interface CgroupsProps {
  groups: Cgroup[];
  at: number;
  filter: string;
  route: Route;
  shown: Shown;
}

export function Cgroups({ groups, at, filter, route, shown }: CgroupsProps) {
  const order = orderOf(route, COLUMNS);
  const rows = useMemo(() => {
    const needle = filter.toLowerCase();
    const matches = (one: Cgroup) => `${one.cgroup} ${one.cgroup_name ?? ""}`.toLowerCase().includes(needle);
    return groups.filter(matches).sort((a, b) => compare(a, b, order) || a.cgroup.localeCompare(b.cgroup));
  }, [groups, filter, order.key, order.isDescending]);
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of cgroups">
        <table class="data cgroups">
          <caption class="unseen">Cgroups at {clock(at)}</caption>
          <SortedHead columns={COLUMNS} order={order} route={route} />
          <tbody>
            {rows.map((one) => (
              <tr key={one.cgroup}>
                <th scope="row" class="name" title={one.cgroup}>
                  <a href={link("processes", "", { ...rangeQuery(shown.range), t: round(at), group: one.cgroup })}>{one.cgroup_name ?? one.cgroup}</a>
                  {one.cgroup_name && <small> {one.cgroup}</small>}
                </th>
                {COLUMNS.slice(1).map(({ key, unit }) => (
                  <td key={key} class={`num ${one[key] ? "" : "idle"}`}>
                    {quantity(one[key] as number | null, unit ?? "")}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="note">
        {rows.length} cgroups, each with those below it. Lost time adds up all tasks of a cgroup; what waits is the share of the time in which at least one of them waited (PSI).
      </p>
    </>
  );
}
