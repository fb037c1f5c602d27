// A probe that the recorder is asked for.
import { useState } from "preact/hooks";
import { post } from "./api";
import { seconds } from "./format";

/** Asks the recorder for a probe. It answers with its next sample. */
export function Arm({ kinds, interval_s }: { kinds: string[]; interval_s: number }) {
  const [kind, setKind] = useState(kinds.includes("offcpu") ? "offcpu" : kinds[0]!);
  const [pid, setPid] = useState("");
  const [length, setLength] = useState("5");
  const [said, say] = useState("");
  const [isWaiting, setWaiting] = useState(false);
  const ask = (event: Event) => {
    event.preventDefault();
    setWaiting(true);
    say(`The recorder answers with its next sample${interval_s ? `, within ${seconds(interval_s)}` : ""} …`);
    post("captures", { kind, seconds: Number(length), ...(pid ? { pid: Number(pid) } : {}) })
      .then(
        () => say(`${kind} runs for ${seconds(Number(length))}; its capture is in the list when it is over.`),
        (error: Error) => say(error.message),
      )
      .finally(() => setWaiting(false));
  };
  return (
    <form class="bar" onSubmit={ask}>
      <label>
        Capture{" "}
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          {kinds.map((one) => (
            <option key={one}>{one}</option>
          ))}
        </select>
      </label>
      <label>
        of process <input type="number" min="1" placeholder="all" value={pid} onInput={(event) => setPid(event.currentTarget.value)} />
      </label>
      <label>
        for <input type="number" min="1" max="30" required value={length} onInput={(event) => setLength(event.currentTarget.value)} /> s
      </label>
      <button type="submit" disabled={isWaiting}>
        Arm
      </button>
      <output class="range">{said}</output>
    </form>
  );
}
