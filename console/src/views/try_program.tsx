// A short program as JSON, with completion of its ops.

import { useEffect, useRef, useState } from "preact/hooks";
import type { OpEntry } from "../api/types";
import { find, opBeforeCaret } from "../state/catalogue";
import { CompletionList, useCompletion } from "../widgets/completion";
import type { Request } from "../request";

const EXAMPLE = `{
  "instructions": [
    {"op": "tensor", "outputs": ["try_x"], "attrs": {"data": [1.0, 2.0, 3.0], "requires_grad": true}},
    {"op": "mul", "inputs": ["try_x", "try_x"], "outputs": ["try_y"]},
    {"op": "sum", "inputs": ["try_y"], "outputs": ["try_loss"]},
    {"op": "backward", "inputs": [["try_loss"]], "attrs": {"retain_graph": true}},
    {"op": "grad_of", "inputs": ["try_x"], "outputs": ["try_grad"]},
    {"op": "fetch", "inputs": [["try_loss", "try_grad"]]}
  ]
}`;

interface Props {
  onRequest: (request: Request | null) => void;
  onEntry: (entry: OpEntry | null) => void;
}

/** The op that the line of the caret names. Null if it names none. */
function opOnLine(text: string, caret: number): string | null {
  const start = text.lastIndexOf("\n", caret - 1) + 1;
  const end = text.indexOf("\n", caret);
  return /"op"\s*:\s*"([A-Za-z0-9_.]+)"/.exec(text.slice(start, end < 0 ? undefined : end))?.[1] ?? null;
}

export function ProgramForm({ onRequest, onEntry }: Props) {
  const [text, setText] = useState(EXAMPLE);
  const [caret, setCaret] = useState(0);
  const [isOpen, setIsOpen] = useState(false);
  const [fault, setFault] = useState<string | null>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    try {
      onRequest({ path: "/programs", body: JSON.parse(text) as unknown });
      setFault(null);
    } catch (error) {
      onRequest(null);
      setFault((error as Error).message);
    }
  }, [text]);
  const written = isOpen ? opBeforeCaret(text, caret) : null;
  const choose = (entry: OpEntry) => {
    if (written === null) return;
    const rest = text.slice(caret).replace(/^[A-Za-z0-9_.]*"?/, "");
    const end = written.from + entry.key.length + 1;
    setText(`${text.slice(0, written.from)}${entry.key}"${rest}`);
    setIsOpen(false);
    onEntry(entry);
    requestAnimationFrame(() => area.current?.setSelectionRange(end, end));
  };
  const completion = useCompletion(written?.name ?? null, choose);
  const name = opOnLine(text, caret);
  useEffect(() => {
    if (name === null) return;
    let current = true;
    find(name).then((entry) => current && entry !== null && onEntry(entry), () => undefined);
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
            setText(event.currentTarget.value);
            setCaret(event.currentTarget.selectionStart);
            setIsOpen(true);
          }}
          onSelect={(event) => setCaret(event.currentTarget.selectionStart)}
          onBlur={() => setIsOpen(false)}
          onKeyDown={completion.onKey}
        />
      </label>
      <CompletionList id="program-list" completion={completion} onChoose={choose} />
      {fault !== null && (
        <p class="note bad" role="status">
          This is not JSON yet: {fault}
        </p>
      )}
    </div>
  );
}
