// A short program as JSON, with completion of its ops.

import { useEffect, useRef, useState } from "preact/hooks";
import type { OpEntry } from "../api/types";
import { find, opBeforeCaret } from "../state/catalogue";
import { CompletionList, useCompletion } from "../widgets/completion";
import type { TryState } from "../state/try";

/** The op that the line of the caret names. Null if it names none. */
function opOnLine(text: string, caret: number): string | null {
  const start = text.lastIndexOf("\n", caret - 1) + 1;
  const end = text.indexOf("\n", caret);
  return /"op"\s*:\s*"([A-Za-z0-9_.]+)"/.exec(text.slice(start, end < 0 ? undefined : end))?.[1] ?? null;
}

const MAX_IDS = 12;

/** Ids as a list; of many, the first. */
export function idList(ids: readonly string[]): string {
  return ids.slice(0, MAX_IDS).join(", ") + (ids.length > MAX_IDS ? ` and ${ids.length - MAX_IDS} more` : "");
}

export function ProgramForm({ state }: { state: TryState }) {
  const text = state.program.value;
  const [caret, setCaret] = useState(0);
  const [isOpen, setIsOpen] = useState(false);
  const [fault, setFault] = useState<string | null>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    try {
      state.request.value = { path: "/programs", body: JSON.parse(text) as unknown };
      setFault(null);
    } catch (error) {
      state.request.value = null;
      setFault((error as Error).message);
    }
  }, [text]);
  const written = isOpen ? opBeforeCaret(text, caret) : null;
  const choose = (entry: OpEntry) => {
    if (written === null) return;
    const rest = text.slice(caret).replace(/^[A-Za-z0-9_.]*"?/, "");
    const end = written.from + entry.key.length + 1;
    state.program.value = `${text.slice(0, written.from)}${entry.key}"${rest}`;
    setIsOpen(false);
    state.entry.value = entry;
    requestAnimationFrame(() => area.current?.setSelectionRange(end, end));
  };
  const completion = useCompletion(written?.name ?? null, choose);
  const name = opOnLine(text, caret);
  useEffect(() => {
    if (name === null) return;
    let current = true;
    find(name).then(
      (entry) => {
        if (current && entry !== null) state.entry.value = entry;
      },
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [name]);
  return (
    <div class="completed">
      <label class="field">
        Program
        <textarea
          ref={area}
          class="mono"
          rows={12}
          spellcheck={false}
          value={text}
          onInput={(event) => {
            state.program.value = event.currentTarget.value;
            setCaret(event.currentTarget.selectionStart);
            setIsOpen(true);
          }}
          onSelect={(event) => setCaret(event.currentTarget.selectionStart)}
          onBlur={() => setIsOpen(false)}
          onKeyDown={completion.onKey}
        />
      </label>
      <CompletionList id="program-list" completion={completion} onChoose={choose} />
      {state.inTheWay.value.length > 0 && (
        <label class="check">
          <input type="checkbox" checked={state.frees.value} onChange={(event) => (state.frees.value = event.currentTarget.checked)} />
          Free first what this box has made: {idList(state.inTheWay.value)}
        </label>
      )}
      {fault !== null && (
        <p class="note bad" role="status">
          This is not JSON yet: {fault}
        </p>
      )}
    </div>
  );
}
