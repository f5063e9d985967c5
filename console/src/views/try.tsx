// A box that runs one op or a short program in the session, and shows the request in several languages.

import { useState } from "preact/hooks";
import { BASE, hasKey, sessionPath } from "../api/client";
import type { OpEntry } from "../api/types";
import { formatSeconds } from "../format";
import type { Request } from "../request";
import type { SessionWatch } from "../state/session";
import { tryOf } from "../state/try";
import type { TryResult } from "../state/try";
import { LANGUAGES, snippet } from "../snippets";
import type { Language } from "../snippets";
import { ErrorNote, Icon, Segments } from "../widgets/common";
import { Doc } from "../widgets/doc";
import { OpForm } from "./try_op";
import { ProgramForm, idList } from "./try_program";

const MAX_SHOWN = 20_000;

export function TryView({ watch }: { watch: SessionWatch }) {
  const state = tryOf(watch.id);
  const mode = state.mode.value;
  const request = state.request.value;
  const entry = state.entry.value;
  const result = state.result.value;
  const running = state.running.value;
  const run = () => void state.run();
  return (
    <section class="page try" onKeyDown={(event) => (event.ctrlKey || event.metaKey) && event.key === "Enter" && run()}>
      <div class="try-main">
        <article class="card">
          <div class="card-head">
            <h2>Run in this session</h2>
            <span class="grow" />
            <Segments
              label="What to run"
              value={mode}
              choices={[
                { value: "op", label: "One op" },
                { value: "program", label: "Program" },
              ]}
              onChange={(value) => {
                state.mode.value = value;
                state.request.value = null;
                state.result.value = null;
              }}
            />
          </div>
          {mode === "op" ? (
            <OpForm session={watch.id} state={state} />
          ) : (
            <ProgramForm state={state} />
          )}
          <div class="actions">
            <span class="hint">
              {request === null && mode === "op"
                ? "Choose an op before you run it."
                : "Ctrl + Enter runs it. It changes the session, as any client would."}
            </span>
            <button type="button" class="primary" disabled={request === null || running} onClick={run}>
              {running ? "Running…" : "Run"}
            </button>
          </div>
        </article>
        {result !== null && result.freed.length > 0 && (
          <p class="quiet" role="status">
            Freed first: {idList(result.freed)}
          </p>
        )}
        {result !== null && <Answer result={result} />}
        {request !== null && <Code watch={watch} request={request} />}
      </div>
      <aside class="try-side" aria-label="Documentation">
        {entry === null ? <p class="quiet card">Choose an op, and its documentation stands here.</p> : <OpDocumentation entry={entry} />}
      </aside>
    </section>
  );
}

function Answer({ result }: { result: TryResult }) {
  if (result.error !== null) return <ErrorNote error={result.error} />;
  const text = JSON.stringify(result.answer, null, 1).replace(/\[\s+([^[\]{}]*?)\s+\]/g, (_, inner: string) => `[${inner.replace(/\s+/g, " ")}]`);
  return (
    <article class="card">
      <div class="card-head" role="status">
        <h2>Answer</h2>
        <span class="quiet">after {formatSeconds(result.seconds)}</span>
      </div>
      <pre class="answer" tabIndex={0} aria-label="Answer">
        {text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}\n… ${text.length - MAX_SHOWN} more characters` : text}
      </pre>
    </article>
  );
}

function Code({ watch, request }: { watch: SessionWatch; request: Request }) {
  const [language, setLanguage] = useState<Language>("curl");
  const [copied, setCopied] = useState(false);
  const url = new URL(sessionPath(watch.id, request.path), BASE).href;
  const text = snippet(language, { url, body: request.body, withKey: hasKey() });
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <article class="card">
      <div class="card-head">
        <h2>The same as code</h2>
        <span class="grow" />
        <Segments
          label="Language"
          value={language}
          choices={LANGUAGES.map((each) => ({ value: each, label: each }))}
          onChange={setLanguage}
        />
        <button type="button" onClick={() => void copy()}>
          <Icon name="copy" /> {copied ? "Copied" : "Copy"}
        </button>
      </div>
      <pre tabIndex={0} aria-label={`The request in ${language}`}>
        {text}
      </pre>
    </article>
  );
}

function OpDocumentation({ entry }: { entry: OpEntry }) {
  const params = [...entry.inputs, ...entry.attrs];
  return (
    <article class="card">
      <h2>{entry.key}</h2>
      <p class="quiet">
        {[entry.namespace === "" ? entry.kind : `${entry.namespace}.${entry.name}`, entry.differentiable ? "differentiable" : ""]
          .filter(Boolean)
          .join(" · ")}
      </p>
      <pre class="signature" tabIndex={0} aria-label="Signature">
        {entry.signature}
      </pre>
      {entry.doc.split(/\n\n+/).map((paragraph) => (
        <p key={paragraph}>
          <Doc text={paragraph} />
        </p>
      ))}
      {params.length > 0 && (
        <dl class="facts">
          {params.map((param) => (
            <div key={param.name}>
              <dt>
                <code>{param.name}</code>
              </dt>
              <dd>
                {param.kind}
                {param.required ? "" : `, default ${JSON.stringify(param.default)}`}
                {param.description !== undefined && param.description !== "" && <p class="quiet"><Doc text={param.description} /></p>}
              </dd>
            </div>
          ))}
        </dl>
      )}
    </article>
  );
}
