// What nobody suffers from yet.
import type { Finding } from "./api";
import { culpritText, rangeText, seconds, words } from "./format";
import type { Found } from "./state";

function limit({ limit_in_seconds }: Finding): string {
  return limit_in_seconds ? `limit in ${[...new Set(limit_in_seconds.map(seconds))].join(" to ")}` : "";
}

export function Findings({ found }: { found: Found | undefined }) {
  const findings = found?.findings;
  return (
    <>
      <div class="bar">
        <h2>Findings</h2>
        {found && <span class="range">{rangeText(found.range.since, found.range.until)}</span>}
      </div>
      {found?.error && (
        <p class="error" role="alert">
          {found.error}
        </p>
      )}
      {!found && <p class="note">looking …</p>}
      {findings?.length === 0 && !found?.error && <p class="note">Nothing grows towards a limit in this time.</p>}
      {!!findings?.length && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of findings">
          <table class="data">
            <thead>
              <tr>
                <th scope="col">finding</th>
                <th scope="col">what was seen</th>
                <th scope="col">whose</th>
                <th scope="col">when</th>
                <th scope="col">do</th>
              </tr>
            </thead>
            <tbody>
              {findings.map((one, index) => (
                <tr key={index}>
                  <th scope="row">{words(one.condition)}</th>
                  <td class="wide">{one.statement}</td>
                  <td>{culpritText(one.culprit)}</td>
                  <td>{limit(one)}</td>
                  <td class="wide">{one.remedies?.[0]?.do}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
