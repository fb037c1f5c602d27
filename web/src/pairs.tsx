// Names and what is said of each; the first few, and the rest when asked for.
import { useState } from "preact/hooks";

const FIRST_ROWS = 6;

export function Pairs({ title, rows }: { title: string; rows: [string, string][] }) {
  const [isOpen, setOpen] = useState(false);
  if (rows.length === 0) return null;
  const shown = isOpen ? rows : rows.slice(0, FIRST_ROWS);
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <dl class="pairs">
        {shown.map(([name, text], index) => (
          <div key={index}>
            <dt>{name}</dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      {rows.length > shown.length && (
        <button type="button" onClick={() => setOpen(true)}>
          {rows.length - shown.length} more
        </button>
      )}
    </section>
  );
}
