// The form of one op or verb: a field for each of its parameters.

import type { TargetedKeyboardEvent } from "preact";
import { useEffect, useState } from "preact/hooks";
import { getJson, sessionPath } from "../api/client";
import type { OpEntry, OpParam, Page } from "../api/types";
import { firstFields, requestOf } from "../request";
import { find } from "../state/catalogue";
import { usePolled } from "../state/polling";
import type { TryState } from "../state/try";
import { CompletionList, useCompletion } from "../widgets/completion";

const MAX_TENSORS = 200;
/** What most people do first. */
const SHORTCUTS = [
  { key: "tensor", label: "New tensor", title: "A tensor with values that you type" },
  { key: "backward", label: "Backward", title: "Compute the gradients of a result" },
];

export function OpForm({ session, state }: { session: string; state: TryState }) {
  const { text, chosen, fields, outputs } = state;
  const entry = chosen.value;
  const [typing, setTyping] = useState<string | null>(null);
  const setEntry = (op: OpEntry | null) => {
    chosen.value = op;
    state.entry.value = op;
    state.result.value = null; // that was another op's
  };
  const { data, refresh } = usePolled(
    (signal) => getJson<Page<{ id: string }>>(sessionPath(session, `/tensors?limit=${MAX_TENSORS}`), signal),
    5000,
    session,
  );
  const choose = (op: OpEntry) => {
    const first = firstFields(op, data?.items.map(({ id }) => id) ?? []);
    text.value = op.key;
    setTyping(null);
    setEntry(op);
    fields.value = first.fields;
    outputs.value = first.outputs;
    refresh();
  };
  const chooseNamed = async (name: string) => {
    const named = await find(name).catch(() => null);
    if (named !== null) choose(named);
  };
  /** Choose the op that was typed, if it was typed whole. */
  const chooseTyped = (typed: string) => typed !== "" && typed !== entry?.key && void chooseNamed(typed);
  const type = (typed: string) => {
    text.value = typed;
    setTyping(typed);
    if (entry !== null) setEntry(null);
  };
  const completion = useCompletion(typing, choose);
  const onKey = (event: TargetedKeyboardEvent<HTMLInputElement>) => {
    if (completion.onKey(event) || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter") chooseTyped(event.currentTarget.value.trim());
    else if (event.key === "ArrowDown") {
      setTyping(text.value);
      completion.open();
    }
  };
  useEffect(() => {
    state.request.value = entry === null ? null : requestOf(entry, fields.value, outputs.value);
  }, [entry, fields.value, outputs.value]);
  useEffect(() => {
    state.entry.value = chosen.value;
  }, []);
  const set = (name: string, value: string) => (fields.value = { ...fields.value, [name]: value });
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
            value={text.value}
            onInput={(event) => type(event.currentTarget.value)}
            onFocus={() => text.value === "" && setTyping("")}
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
            <ParamField key={`${entry.key} ${param.name}`} param={param} value={fields.value[param.name] ?? ""} onChange={(value) => set(param.name, value)} />
          ))}
          <label class="field">
            <span>
              Ids of the outputs{" "}
              <span class="quiet">
                separated by commas; {entry.kind === "verb" ? "without one, its result is dropped" : "the server chooses them if this is empty"}
              </span>
            </span>
            <input value={outputs.value} spellcheck={false} onInput={(event) => (outputs.value = event.currentTarget.value)} />
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
