// The frame around every view: navigation, what the server is up to, the question for a key.

import { useEffect, useState } from "preact/hooks";
import { keyRequest, locked, unlock, unreachableSince } from "./api/client";
import type { KeyRequest } from "./api/client";
import { clockTime } from "./format";
import { route } from "./state/route";
import { restartNotice, serverVersion, versionDiffers } from "./state/server";
import { ServerView } from "./views/server";
import { SessionView } from "./views/session";
import { SessionsView } from "./views/sessions";
import { Dialog, Empty, Logo } from "./widgets/common";

export function App() {
  return (
    <>
      <a class="skip" href="#main" onClick={focusMain}>
        Skip to content
      </a>
      <TopBar />
      <Banners />
      <main id="main" tabIndex={-1}>
        <View />
      </main>
      {keyRequest.value !== null && <KeyDialog request={keyRequest.value} />}
    </>
  );
}

function focusMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function View() {
  const here = route.value;
  useEffect(() => {
    document.title = here.view === "server" ? "Server · Telegrad" : here.view === "sessions" ? "Sessions · Telegrad" : "Telegrad";
  }, [here.view]);
  if (here.view === "sessions") return <SessionsView />;
  if (here.view === "server") return <ServerView />;
  if (here.view === "session") return <SessionView key={here.id} id={here.id} tab={here.tab} />;
  return (
    <Empty title="There is no such view">
      <p>
        <a href="#/sessions">All sessions</a>
      </p>
    </Empty>
  );
}

function TopBar() {
  const view = route.value.view;
  return (
    <header class="top">
      <a class="brand" href="#/sessions" aria-label="Telegrad, all sessions">
        <Logo />
        <span>Telegrad</span>
      </a>
      <nav aria-label="Main">
        <a href="#/sessions" aria-current={view === "sessions" || view === "session" ? "page" : undefined}>
          Sessions
        </a>
        <a href="#/server" aria-current={view === "server" ? "page" : undefined}>
          Server
        </a>
        <a href="./docs">API</a>
      </nav>
      <span class={`status ${unreachableSince.value === null ? "up" : "down"}`} role="status">
        {unreachableSince.value === null ? (serverVersion.value ?? "…") : "no answer"}
      </span>
    </header>
  );
}

function Banners() {
  return (
    <div class="banners">
      {unreachableSince.value !== null && (
        <p class="banner bad" role="alert">
          The server has not answered since {clockTime(new Date(unreachableSince.value))}. The page tries again by itself.
        </p>
      )}
      {restartNotice.value !== null && (
        <p class="banner" role="status">
          {restartNotice.value}
          <button type="button" class="link" onClick={() => (restartNotice.value = null)}>
            Dismiss
          </button>
        </p>
      )}
      {versionDiffers() && (
        <p class="banner" role="status">
          This page is from Telegrad {__VERSION__}, the server is {serverVersion.value}.
          <button type="button" class="link" onClick={() => location.reload()}>
            Reload the page
          </button>
        </p>
      )}
      {locked.value && (
        <p class="banner" role="status">
          The server asks for an API key.
          <button type="button" class="link" onClick={unlock}>
            Enter a key
          </button>
        </p>
      )}
    </div>
  );
}

function KeyDialog({ request }: { request: KeyRequest }) {
  const [text, setText] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (text.trim() !== "") request.answer(text.trim());
  };
  return (
    <Dialog title="API key" onClose={() => request.answer(null)}>
      <form onSubmit={submit}>
        <p>{request.reason}</p>
        <label class="field">
          Key
          <input
            type="password"
            autocomplete="off"
            spellcheck={false}
            autofocus
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        <p class="hint">The key stays in this page's memory until you close or reload it.</p>
        <div class="actions">
          <button type="button" onClick={() => request.answer(null)}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={text.trim() === ""}>
            Continue
          </button>
        </div>
      </form>
    </Dialog>
  );
}
