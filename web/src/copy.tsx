import { useState } from "preact/hooks";

/** The clipboard needs a secure context, which a page from another machine over HTTP is not. */
async function copy(text: string): Promise<boolean> {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Refused: the selection below does it.
    }
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

export function Copy({ text }: { text: string }) {
  const [state, set] = useState("Copy");
  const pressed = async () => {
    set((await copy(text)) ? "Copied" : "Cannot copy");
    window.setTimeout(() => set("Copy"), 1500);
  };
  return (
    <button type="button" class="copy" aria-live="polite" onClick={() => void pressed()}>
      {state}
    </button>
  );
}
