// The form of one op: a field for each of its parameters.

import { useEffect, useState } from "preact/hooks";
import { getJson, sessionPath } from "../api/client";
import type { OpEntry, OpParam, Page } from "../api/types";
import { inputsOf, parseArgument } from "../state/catalogue";
import { usePolled } from "../state/polling";
import { CompletionList, useCompletion } from "../widgets/completion";
import type { Request } from "./try";

interface Props {
  session: string;
  onRequest: (request: Request | null) => void;
  onEntry: (entry: OpEntry | null) => void;
}

const MAX_TENSORS = 200;

export function OpForm({ session, onRequest, onEntry }: Props) {
  const [text, setText] = useState("");
  const [typing, setTyping] = useState<string | null>(null);
  const [entry, setEntry] = useState<OpEntry | null>(null);
  const [fields, setFields] = useState<Record<string, string>>({});
  const [outputs, setOutputs] = useState("");
  const { data } = usePolled(
    (signal) => getJson<Page<{ id: string }>>(sessionPath(session, `/tensors?limit=${MAX_TENSORS}`), signal),
    5000,
    session,
  );
  const choose = (chosen: OpEntry) => {
    setText(chosen.key);
    setTyping(null);
    setEntry(chosen);
    setFields({});
    onEntry(chosen);
  };
  const completion = useCompletion(typing, choose);
  useEffect(() => onRequest(entry === null ? null : requestOf(entry, fields, outputs)), [entry, fields, outputs]);
  const set = (name: string, value: string) => setFields({ ...fields, [name]: value });
  return (
    <div class="op-form">
      <label class="field completed">
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
          onInput={(event) => {
            setText(event.currentTarget.value);
            setTyping(event.currentTarget.value);
          }}
          onFocus={() => text === "" && setTyping("")}
          onBlur={() => setTyping(null)}
          onKeyDown={completion.onKey}
        />
        <CompletionList id="op-list" completion={completion} onChoose={choose} />
      </label>
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
              Ids of the outputs <span class="quiet">separated by commas; the server chooses them if this is empty</span>
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
  const hint = param.source === "input" ? "a tensor's id, or a number" : param.required ? "" : JSON.stringify(param.default);
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

function requestOf(entry: OpEntry, fields: Record<string, string>, outputs: string): Request {
  const attrs = Object.fromEntries(
    entry.attrs.filter(({ name }) => (fields[name] ?? "").trim() !== "").map(({ name }) => [name, parseArgument(fields[name] ?? "")]),
  );
  const ids = outputs.split(",").map((id) => id.trim()).filter(Boolean);
  const inputs = inputsOf(entry.inputs.map(({ name }) => fields[name] ?? ""));
  return {
    path: `/ops/${encodeURIComponent(entry.key)}?data=true`,
    body: { inputs, ...(Object.keys(attrs).length > 0 ? { attrs } : {}), ...(ids.length > 0 ? { outputs: ids } : {}) },
  };
}
