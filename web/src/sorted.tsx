// The heading of a table that is sorted by one of its columns; the address keeps by which.
import { change, type Route } from "./route";

export interface Column {
  key: string;
  title: string;
  unit?: string;
  isText?: boolean;
}

export interface Order {
  key: string;
  isDescending: boolean;
}

/** What is asked for, if the table has it. */
export function orderOf(route: Route, columns: Column[]): Order {
  const asked = route.query.get("sort");
  return { key: columns.find((one) => one.key === asked)?.key ?? "cpu", isDescending: route.query.get("down") !== "0" };
}

/** What is not known comes last, either way. */
export function compare(a: Record<string, unknown>, b: Record<string, unknown>, { key, isDescending }: Order): number {
  const [x, y] = [a[key], b[key]];
  if (x === y) return 0;
  if (x === null || x === undefined) return 1;
  if (y === null || y === undefined) return -1;
  const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
  return isDescending ? -order : order;
}

export function SortedHead({ columns, order, route }: { columns: Column[]; order: Order; route: Route }) {
  return (
    <thead>
      <tr>
        {columns.map(({ key, title, isText }) => (
          <th key={key} scope="col" class={isText ? "" : "num"} aria-sort={key === order.key ? (order.isDescending ? "descending" : "ascending") : "none"}>
            <button type="button" onClick={() => change(route, { sort: key, down: key === order.key && order.isDescending ? 0 : undefined }, true)}>
              {title}
              {key === order.key && (order.isDescending ? " ▾" : " ▴")}
            </button>
          </th>
        ))}
      </tr>
    </thead>
  );
}
