// The form of one op or verb: a field for each of its parameters.

import type { TargetedKeyboardEvent } from "preact";
import { useEffect, useState } from "preact/hooks";
import { getJson, sessionPath } from "../api/client";
import type { OpEntry, OpParam, Page } from "../api/types";
import { firstFields, requestOf } from "../request";
import type { Fields, Request } from "../request";
import { find } from "../state/catalogue";
import { usePolled } from "../state/polling";
import { CompletionList, useCompletion } from "../widgets/completion";

interface Props {
  session: string;
  onRequest: (request: Request | null) => void;
  onEntry: (entry: OpEntry | null) => void;
}

const MAX_TENSORS = 200;
/** What most people do first. */
const SHORTCUTS = [
  { key: "tensor", label: "New tensor", title: "A tensor with values that you type" },
  { key: "backward", label: "Backward", title: "Compute the gradients of a result" },
];

export function OpForm({ session, onRequest, onEntry }: Props) {
  const [text, setText] = useState("");
  const [typing, setTyping] = useState<string | null>(null);
  const [entry, setEntry] = useState<OpEntry | null>(null);
  const [fields, setFields] = useState<Fields>({});
  const [outputs, setOutputs] = useState("");
  const { data, refresh } = usePolled(
    (signal) => getJson<Page<{ id: string }>>(sessionPath(session, `/tensors?limit=${MAX_TENSORS}`), signal),
    5000,
    session,
  );
  const choose = (chosen: OpEntry) => {
    const first = firstFields(chosen, data?.items.map(({ id }) => id) ?? []);
    setText(chosen.key);
    setTyping(null);
    setEntry(chosen);
    setFields(first.fields);
    setOutputs(first.outputs);
    onEntry(chosen);
    refresh();
  };
  const chooseNamed = async (name: string) => {
    const named = await find(name).catch(() => null);
    if (named !== null) choose(named);
  };
  /** Choose the op that was typed, if it was typed whole. */
  const chooseTyped = (typed: string) => typed !== "" && typed !== entry?.key && void chooseNamed(typed);
  const type = (typed: string) => {
    setText(typed);
    setTyping(typed);
    if (entry === null) return;
    setEntry(null);
    onEntry(null);
  };
  const completion = useCompletion(typing, choose);
  const onKey = (event: TargetedKeyboardEvent<HTMLInputElement>) => {
    if (completion.onKey(event) || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter") chooseTyped(event.currentTarget.value.trim());
    else if (event.key === "ArrowDown") {
      setTyping(text);
      completion.open();
    }
  };
  useEffect(() => onRequest(entry === null ? null : requestOf(entry, fields, outputs)), [entry, fields, outputs]);
  const set = (name: string, value: string) => setFields({ ...fields, [name]: value });
  return (
    <div class="op-form">
      <div class="shortcuts">
        {SHORTCUTS.map(({ key, label, title }) => (
          <button key={key} type="button" title={title} onClick={() => void chooseNamed(key)}>
            {label}
          </button>
        ))}
      </div>
      <div class="completed">
        <label class="field">
          Op
          <input
            role="combobox"
            aria-expanded={completion.entries.length > 0}
            aria-controls="op-list"
            aria-autocomplete="list"
            aria-activedescendant={completion.active >= 0 ? `op-list-${completion.active}` : undefined}
            autocomplete="off"
            spellcheck={false}
            placeholder="mul, linear, softmax…"
            value={text}
            onInput={(event) => type(event.currentTarget.value)}
            onFocus={() => text === "" && setTyping("")}
            onBlur={(event) => {
              setTyping(null);
              chooseTyped(event.currentTarget.value.trim());
            }}
            onKeyDown={onKey}
          />
        </label>
        <CompletionList id="op-list" completion={completion} onChoose={choose} />
      </div>
      <datalist id="tensor-ids">
        {data?.items.map(({ id }) => (
          <option key={id} value={id} />
        ))}
      </datalist>
      {entry !== null && (
        <>
          {[...entry.inputs, ...entry.attrs].map((param) => (
            <ParamField key={`${entry.key} ${param.name}`} param={param} value={fields[param.name] ?? ""} onChange={(value) => set(param.name, value)} />
          ))}
          <label class="field">
            <span>
              Ids of the outputs{" "}
              <span class="quiet">
                separated by commas; {entry.kind === "verb" ? "without one, its result is dropped" : "the server chooses them if this is empty"}
              </span>
            </span>
            <input value={outputs} spellcheck={false} onInput={(event) => setOutputs(event.currentTarget.value)} />
          </label>
        </>
      )}
    </div>
  );
}

interface ParamProps {
  param: OpParam;
  value: string;
  onChange: (value: string) => void;
}

function ParamField({ param, value, onChange }: ParamProps) {
  const hint = param.source === "input" ? inputHint(param) : param.required ? "" : JSON.stringify(param.default);
  return (
    <label class="field">
      <span>
        {param.name} <span class="quiet">{`${param.kind}${param.required ? "" : ", optional"}`}</span>
      </span>
      <input
        value={value}
        spellcheck={false}
        autocomplete="off"
        placeholder={hint}
        list={param.source === "input" ? "tensor-ids" : undefined}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    </label>
  );
}

function inputHint({ kind }: OpParam): string {
  return kind.startsWith("tuple") ? "ids of tensors, separated by commas" : "a tensor's id, or a number";
}
