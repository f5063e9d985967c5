// Views whose code is loaded when they are first shown, so that the first page is there soon.

import type { FunctionComponent } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ErrorNote } from "./common";

/** The view that `load` loads. */
export function deferred<P>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  let loaded: FunctionComponent<P> | null = null;
  return function Deferred(props: P) {
    const [error, setError] = useState<Error | null>(null);
    const [View, setView] = useState(() => loaded);
    useEffect(() => {
      // Also if the code has arrived: that may have been after this component was drawn.
      load().then((view) => {
        loaded = view;
        setView(() => view);
      }, setError);
    }, []);
    if (View !== null) return <View {...(props as P & Record<string, unknown>)} />;
    if (error === null) return <div class="loading" role="status" aria-label="Loading" />;
    return (
      <div class="page">
        <ErrorNote error={error} title="This view could not be loaded" />
        <button type="button" onClick={() => location.reload()}>
          Reload the page
        </button>
      </div>
    );
  };
}
