// Ops that fit what somebody types, below the field; by mouse or by arrow keys, Enter and Escape.

import { useEffect, useState } from "preact/hooks";
import type { OpEntry } from "../api/types";
import { complete } from "../state/catalogue";
import { Doc } from "./doc";

const DELAY_MS = 120;

export interface Completion {
  entries: OpEntry[];
  active: number;
  /** Whether the key was for the list. */
  onKey: (event: KeyboardEvent) => boolean;
  close: () => void;
  /** Show the list again. */
  open: () => void;
}

/** Completion of a text; null closes the list. Ends a choice with `onChoose`. */
export function useCompletion(text: string | null, onChoose: (entry: OpEntry) => void): Completion {
  const [entries, setEntries] = useState<OpEntry[]>([]);
  const [active, setActive] = useState(-1);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    setActive(-1);
    if (text === null) return setEntries([]);
    let current = true;
    const timer = setTimeout(() => {
      complete(text).then(
        (found) => current && setEntries(found),
        () => current && setEntries([]),
      );
    }, DELAY_MS);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [text, turn]);
  const close = () => setEntries([]);
  const open = () => setTurn((value) => value + 1);
  const onKey = (event: KeyboardEvent): boolean => {
    if (entries.length === 0) return false;
    if (event.key === "ArrowDown") setActive((active + 1) % entries.length);
    else if (event.key === "ArrowUp") setActive((active - 1 + entries.length) % entries.length);
    else if (event.key === "Escape") close();
    else if ((event.key === "Enter" || event.key === "Tab") && active >= 0) {
      const entry = entries[active];
      if (entry !== undefined) onChoose(entry);
      close();
    } else return false;
    event.preventDefault();
    return true;
  };
  return { entries, active, onKey, close, open };
}

interface ListProps {
  id: string;
  completion: Completion;
  onChoose: (entry: OpEntry) => void;
}

export function CompletionList({ id, completion, onChoose }: ListProps) {
  const { entries, active } = completion;
  if (entries.length === 0) return null;
  return (
    <ul class="completion" role="listbox" id={id} aria-label="Ops">
      {entries.map((entry, index) => (
        <li
          key={entry.key}
          id={`${id}-${index}`}
          role="option"
          aria-selected={index === active}
          onPointerDown={(event) => {
            event.preventDefault();
            onChoose(entry);
            completion.close();
          }}
        >
          <code>{entry.key}</code>
          <span class="quiet">
            <Doc text={entry.doc.split("\n")[0] ?? ""} />
          </span>
        </li>
      ))}
    </ul>
  );
}
