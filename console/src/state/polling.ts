// Reading something again and again while somebody looks.

import { useEffect, useRef, useState } from "preact/hooks";
import { reconnects } from "../api/client";

export interface Polled<T> {
  data: T | null;
  error: Error | null;
  refresh: () => void;
}

/**
 * Read now, and then every `periodMs` milliseconds while the page is visible; a read starts after the last has ended.
 * It is read at once when `key` changes, and when the server is back. The data stay while a later read fails.
 */
export function usePolled<T>(read: (signal: AbortSignal) => Promise<T>, periodMs: number, key = ""): Polled<T> {
  const [state, setState] = useState<{ key: string; data: T | null; error: Error | null }>({ key, data: null, error: null });
  const [turn, setTurn] = useState(0);
  const latest = useRef(read);
  latest.current = read;
  const back = reconnects.value;
  useEffect(() => {
    const controller = new AbortController();
    let timer = 0;
    const again = () => {
      if (periodMs < Infinity) timer = window.setTimeout(once, periodMs);
    };
    const once = async () => {
      if (document.hidden) return again();
      try {
        const data = await latest.current(controller.signal);
        if (!controller.signal.aborted) setState({ key, data, error: null });
      } catch (error) {
        if (controller.signal.aborted) return;
        setState((before) => ({ key, data: before.key === key ? before.data : null, error: error as Error }));
      }
      if (!controller.signal.aborted) again();
    };
    void once();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [key, periodMs, turn, back]);
  const current = state.key === key;
  return {
    data: current ? state.data : null,
    error: current ? state.error : null,
    refresh: () => setTurn((value) => value + 1),
  };
}
