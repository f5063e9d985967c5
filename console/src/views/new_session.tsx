// The button that creates a session, and asks for its name.

import { useState } from "preact/hooks";
import { postJson } from "../api/client";
import type { Session } from "../api/types";
import { sessionHref } from "../state/route";
import { Dialog, ErrorNote } from "../widgets/common";

export function NewSession() {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" title="Create an empty session on this server" onClick={() => setOpen(true)}>
        New session
      </button>
      {open && <NameDialog onClose={() => setOpen(false)} />}
    </>
  );
}

function NameDialog({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [error, setError] = useState<Error | null>(null);
  const create = async (event: Event) => {
    event.preventDefault();
    try {
      const given = name.trim();
      const session = await postJson<Session>("v1/sessions", given === "" ? {} : { name: given });
      location.hash = sessionHref(session.id, "try");
    } catch (problem) {
      setError(problem as Error);
    }
  };
  return (
    <Dialog title="New session" onClose={onClose}>
      <form onSubmit={(event) => void create(event)}>
        <label class="field">
          Name, optional
          <input autofocus autocomplete="off" spellcheck={false} value={name} onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <p class="hint">Tensors are made and ops run on the session's page, below “Try it”, or by any client that knows its id.</p>
        {error !== null && <ErrorNote error={error} />}
        <div class="actions">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Create
          </button>
        </div>
      </form>
    </Dialog>
  );
}
