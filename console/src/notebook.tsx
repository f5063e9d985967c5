// The graph view in a notebook, for anywidget. The kernel asks the server: the browser may not reach it.

import { render } from "preact";
import "@preact/signals";
import { signal } from "@preact/signals";
import { Problem } from "./api/client";
import type { BackwardFlow, FoldedGraph, GraphNode, Source } from "./api/types";
import type { Folding, GraphQuery, GraphSource } from "./state/graph";
import { GraphView } from "./views/graph";
import base from "./style/base.css?inline";
import controls from "./style/controls.css?inline";
import graphStyle from "./style/graph.css?inline";
import views from "./style/views.css?inline";
import frame from "./style/notebook.css?inline";

interface Failure {
  title: string;
  detail: string;
}

/** The last graph that the kernel read, and the query that it answers. */
interface Picture {
  query?: GraphQuery;
  graph?: FoldedGraph;
  error?: Failure;
}

interface Answer {
  id: number;
  answer?: unknown;
  error?: Failure;
}

/** The part of anywidget's model that is used. */
interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(content: unknown): void;
  on(event: string, callback: (message: never) => void): void;
  off(event: string, callback: (message: never) => void): void;
}

interface Waiting {
  resolve: (answer: never) => void;
  reject: (error: Error) => void;
}

class KernelGraph implements GraphSource {
  readonly ended = signal<string | null>(null);
  private readonly picture = signal<Picture>({});
  private readonly asked = new Map<number, Waiting>();
  private count = 0;

  constructor(private readonly model: Model) {
    this.takePicture();
    this.takeEnd();
    model.on("change:picture", this.takePicture);
    model.on("change:ended", this.takeEnd);
    model.on("msg:custom", this.takeAnswer);
  }

  close(): void {
    this.model.off("change:picture", this.takePicture);
    this.model.off("change:ended", this.takeEnd);
    this.model.off("msg:custom", this.takeAnswer);
  }

  title(): string {
    return this.model.get("title") as string;
  }

  changes(): unknown {
    return this.picture.value;
  }

  /** The kernel reads the graph again and again, also while a cell runs, when it hears nothing. */
  folded(query: GraphQuery, aborted: AbortSignal): Promise<FoldedGraph> {
    if (!isSameQuery(this.model.get("query") as GraphQuery, query)) {
      this.model.set("query", query);
      this.model.save_changes();
    }
    return new Promise((resolve, reject) => {
      const stop = this.picture.subscribe((picture) => {
        if (!isSameQuery(picture.query, query)) return;
        if (picture.graph === undefined) reject(problemOf(picture.error));
        else resolve(picture.graph);
        queueMicrotask(() => stop());
      });
      aborted.addEventListener("abort", () => {
        stop();
        reject(new Error("another graph was asked for"));
      });
    });
  }

  node(id: string, source: Source): Promise<GraphNode> {
    return this.ask({ node: id, source });
  }

  flow(tensor: string, { fold, expand }: Folding): Promise<BackwardFlow> {
    // What "auto" is depends on the most boxes, which the kernel may know better.
    const drawn = fold === "auto" ? this.picture.value.graph?.fold : fold;
    return this.ask({ tensor, fold: drawn ?? fold, expand });
  }

  private ask<T>(question: object): Promise<T> {
    const id = (this.count += 1);
    return new Promise<T>((resolve, reject) => {
      this.asked.set(id, { resolve, reject });
      this.model.send({ id, ...question });
    });
  }

  private readonly takePicture = (): void => {
    this.picture.value = this.model.get("picture") as Picture;
  };

  private readonly takeEnd = (): void => {
    this.ended.value = (this.model.get("ended") as string) || null;
  };

  private readonly takeAnswer = ({ id, answer, error }: Answer): void => {
    const waiting = this.asked.get(id);
    this.asked.delete(id);
    if (error !== undefined) waiting?.reject(problemOf(error));
    else waiting?.resolve(answer as never);
  };
}

function isSameQuery(a: GraphQuery | undefined, b: GraphQuery): boolean {
  return a !== undefined && a.source === b.source && a.fold === b.fold && a.root === b.root && a.expand.join() === b.expand.join();
}

function problemOf(error: Failure | undefined): Problem {
  return new Problem(0, { ...error });
}

function NotebookGraph({ source }: { source: KernelGraph }) {
  const ended = source.ended.value;
  return (
    <div class="notebook-graph">
      {ended !== null && (
        <p class="banner" role="status">
          Not up to date: {ended}.
        </p>
      )}
      <GraphView watch={source} />
    </div>
  );
}

/** Shows the widget in an element of a notebook's page, and keeps the styles of the two apart. Returns what ends it. */
function show({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const host = document.createElement("div");
  host.dataset["lmSuppressShortcuts"] = "true"; // JupyterLab takes keys in a notebook for its own
  const root = host.attachShadow({ mode: "open" });
  const style = document.createElement("style");
  style.textContent = [base, controls, views, graphStyle, frame].join("\n");
  const content = document.createElement("div");
  root.append(style, content);
  el.replaceChildren(host);
  const source = new KernelGraph(model);
  render(<NotebookGraph source={source} />, content);
  return () => {
    render(null, content);
    source.close();
  };
}

export default { render: show };
