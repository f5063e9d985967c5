// The drawing of a picture, by Cytoscape.js. Of a large graph, only what is near the visible part is given to it, and
// nothing while so much is visible that labels could not be read: then an overview is drawn below.

import cytoscape from "cytoscape";
import type { Core, ElementDefinition, EventObject, SingularElementArgument, StylesheetJson } from "cytoscape";
import { contains, grown, overlaps, relativeTo } from "../layout/geometry";
import type { Rectangle } from "../layout/geometry";
import { currentPalette } from "./colour";
import type { Palette } from "./colour";
import { Overview, rectangleOf } from "./overview";
import type { DrawnBox, DrawnEdge, Picture } from "./picture";

const MIN_ZOOM = 0.03;
const MAX_ZOOM = 3;
/** The smallest zoom at which the first view shows a graph whole; of a larger one, it shows the newest part. */
const LEGIBLE_ZOOM = 0.42;
const FIRST_ZOOM = 0.8;
const PADDING = 36;
/** How much is drawn around the visible part, as a share of its size, so that panning rarely adds elements. */
const MARGIN = 0.3;
/** The most boxes that are drawn one by one with their labels. */
const MAX_LABELLED = 220;

export interface CanvasEvents {
  onSelect: (id: string | null) => void;
  /** A second press on a box. */
  onOpen: (id: string) => void;
}

export interface Highlight {
  current: string | null;
  /** Boxes and edges, with what is written on these. */
  targets: ReadonlyMap<string, string>;
  matches: ReadonlySet<string>;
}

export class GraphCanvas {
  private readonly cy: Core;
  private readonly observer: ResizeObserver;
  private readonly overview: Overview;
  private palette = currentPalette();
  private selected: string | null = null;
  private drawn: Rectangle | null = null;
  /** The boxes and edges that Cytoscape has, and what it was told of them. */
  private shown = new Map<string, string>();
  /** Whether the user chose the view; until then it follows the graph. */
  private moved = false;
  private frame = 0;
  private highlight: Highlight = { current: null, targets: new Map(), matches: new Set() };

  constructor(
    readonly container: HTMLElement,
    private readonly picture: Picture,
    events: CanvasEvents,
  ) {
    this.overview = new Overview(container);
    this.cy = cytoscape({
      container,
      minZoom: MIN_ZOOM,
      maxZoom: MAX_ZOOM,
      autoungrabify: true,
      boxSelectionEnabled: false,
      selectionType: "single",
      pixelRatio: "auto",
      layout: { name: "preset" },
    });
    this.cy.on("tap", (event) => events.onSelect(this.boxAt(event)));
    this.cy.on("dbltap", (event) => {
      const id = this.boxAt(event);
      if (id !== null) events.onOpen(id);
    });
    // Cytoscape takes the focus away from what has it.
    this.cy.on("tapstart", () => container.focus({ preventScroll: true }));
    this.cy.on("dragpan scrollzoom pinchzoom", () => (this.moved = true));
    this.cy.on("viewport", () => this.schedule());
    this.observer = new ResizeObserver(() => {
      this.cy.resize();
      this.update();
    });
    this.observer.observe(container);
  }

  /** The box that was pressed. Cytoscape knows those that it draws. */
  private boxAt(event: EventObject): string | null {
    if (event.target !== this.cy) {
      const element = event.target as SingularElementArgument;
      return element.isNode() ? element.id() : null;
    }
    const { x, y } = event.position;
    const point = { x1: x, x2: x, y1: y, y2: y };
    for (const drawn of this.picture.boxes.values()) if (overlaps(rectangleOf(drawn), point)) return drawn.box.id;
    return null;
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    this.observer.disconnect();
    this.cy.destroy();
  }

  setPalette(palette: Palette): void {
    this.palette = palette;
    this.cy.style(styleOf(palette));
  }

  /** Draw the picture as it is now. With `isOther`, it is of something else than before, and the view is chosen anew. */
  update(isOther = false): void {
    this.moved &&= !isOther;
    if (!this.moved) this.chooseView();
    this.draw(true);
  }

  setHighlight(highlight: Highlight): void {
    this.highlight = highlight;
    this.cy.batch(() => {
      for (const id of this.shown.keys()) this.mark(id);
    });
    this.draw();
  }

  private mark(id: string): void {
    const { current, targets, matches } = this.highlight;
    const element = this.cy.getElementById(id);
    element.toggleClass("current", id === current);
    if (element.isEdge() && targets.has(id)) element.data("flow", targets.get(id));
    element.toggleClass("target", targets.has(id));
    element.toggleClass("match", matches.has(id));
  }

  select(id: string | null): void {
    this.selected = id;
    this.cy.nodes(":selected").unselect();
    if (id !== null) this.cy.getElementById(id).select();
    this.draw();
  }

  /** Bring a box into view, unless it is. */
  reveal(id: string): void {
    const found = this.picture.boxes.get(id);
    if (found === undefined) return;
    const inner = grown(this.visible(), -60 / this.cy.zoom(), -40 / this.cy.zoom());
    if (contains(inner, { x1: found.x, x2: found.x, y1: found.y, y2: found.y })) return;
    this.moved = true;
    this.lookAt(found.x, found.y, Math.max(this.cy.zoom(), LEGIBLE_ZOOM));
    this.draw();
  }

  zoomBy(factor: number): void {
    const position = { x: this.container.clientWidth / 2, y: this.container.clientHeight / 2 };
    this.moved = true;
    this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: position });
  }

  panBy(x: number, y: number): void {
    this.moved = true;
    this.cy.panBy({ x, y });
  }

  /** Show the graph whole, however small, from now on. */
  fit(): void {
    const bounds = this.picture.bounds();
    if (bounds === null) return;
    this.moved = this.fitZoom(bounds) < LEGIBLE_ZOOM;
    this.lookAt((bounds.x1 + bounds.x2) / 2, (bounds.y1 + bounds.y2) / 2, this.fitZoom(bounds));
    this.draw();
  }

  private fitZoom(bounds: Rectangle): number {
    const width = (this.container.clientWidth - 2 * PADDING) / (bounds.x2 - bounds.x1);
    const height = (this.container.clientHeight - 2 * PADDING) / (bounds.y2 - bounds.y1);
    return Math.max(MIN_ZOOM, Math.min(1, width, height));
  }

  private chooseView(): void {
    const bounds = this.picture.bounds();
    if (bounds === null || this.container.clientWidth === 0) return;
    if (this.fitZoom(bounds) >= LEGIBLE_ZOOM) return this.fit();
    let newest: DrawnBox | null = null;
    const axis = this.picture.direction === "down" ? "y" : "x";
    for (const each of this.picture.boxes.values()) {
      if (newest === null || each[axis] > newest[axis]) newest = each;
    }
    if (newest === null) return;
    const side = axis === "y" ? this.container.clientHeight : this.container.clientWidth;
    const middle = { x: newest.x, y: newest.y };
    middle[axis] -= (side / 2 - 2 * PADDING) / FIRST_ZOOM;
    this.lookAt(middle.x, middle.y, FIRST_ZOOM);
  }

  private lookAt(x: number, y: number, zoom: number): void {
    const pan = { x: this.container.clientWidth / 2 - x * zoom, y: this.container.clientHeight / 2 - y * zoom };
    this.cy.viewport({ zoom, pan });
  }

  private visible(): Rectangle {
    const { x1, y1, x2, y2 } = this.cy.extent();
    return { x1, y1, x2, y2 };
  }

  private schedule(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  private draw(changed = false): void {
    const visible = this.visible();
    if (this.isCrowded(visible)) {
      this.give([], [], false);
      this.drawn = null;
      const { current, targets, matches } = this.highlight;
      const marked = (id: string) => id === this.selected || id === current || targets.has(id) || matches.has(id);
      this.overview.draw(this.picture, { zoom: this.cy.zoom(), pan: this.cy.pan(), visible }, this.palette, marked);
      return;
    }
    this.overview.clear();
    const isMuchLarger = this.drawn !== null && this.drawn.x2 - this.drawn.x1 > 3 * (visible.x2 - visible.x1);
    if (!changed && this.drawn !== null && contains(this.drawn, visible) && !isMuchLarger) return;
    this.drawn = grown(visible, MARGIN * (visible.x2 - visible.x1), MARGIN * (visible.y2 - visible.y1));
    const { boxes, edges } = this.within(this.drawn);
    this.give(boxes, edges, changed);
  }

  private isCrowded(visible: Rectangle): boolean {
    let count = 0;
    for (const drawn of this.picture.boxes.values()) {
      if (overlaps(rectangleOf(drawn), visible)) count += 1;
    }
    return count > MAX_LABELLED;
  }

  /** Have Cytoscape draw these boxes and edges, and nothing else. */
  private give(boxes: Iterable<DrawnBox>, edges: Iterable<DrawnEdge>, changed: boolean): void {
    const wanted = new Map<string, string>();
    const added: ElementDefinition[] = [];
    this.cy.batch(() => {
      for (const drawn of boxes) wanted.set(drawn.box.id, this.sync(drawn, changed, added));
      for (const drawn of edges) wanted.set(drawn.key, this.syncEdge(drawn, changed, added));
      for (const id of this.shown.keys()) {
        if (!wanted.has(id)) this.cy.getElementById(id).remove();
      }
      this.cy.add(added);
      this.shown = wanted;
      for (const { data } of added) if (data.id !== undefined) this.mark(data.id);
      if (this.selected !== null) this.cy.getElementById(this.selected).select();
    });
  }

  /** The boxes and edges that touch an area, with the ends of those edges. */
  private within(area: Rectangle): { boxes: Set<DrawnBox>; edges: Set<DrawnEdge> } {
    const boxes = new Set<DrawnBox>();
    const edges = new Set<DrawnEdge>();
    for (const drawn of this.picture.boxes.values()) if (overlaps(rectangleOf(drawn), area)) boxes.add(drawn);
    for (const drawn of this.picture.edges.values()) {
      if (!overlaps(drawn.bounds, area)) continue;
      edges.add(drawn);
      for (const id of [drawn.edge.source, drawn.edge.target]) {
        const end = this.picture.boxes.get(id);
        if (end !== undefined) boxes.add(end);
      }
    }
    return { boxes, edges };
  }

  /** Tell Cytoscape of a box if it does not know it, or if the box is no longer what it was told. Return what it knows. */
  private sync(drawn: DrawnBox, changed: boolean, added: ElementDefinition[]): string {
    const { box, label, fill, ink, width, height } = drawn;
    const before = this.shown.get(box.id);
    if (before !== undefined && !changed) return before;
    const data = { id: box.id, label, fill, ink, width, height };
    const position = { x: drawn.x, y: drawn.y };
    const now = JSON.stringify([data, position]);
    if (before === undefined) added.push({ group: "nodes", data, position, classes: box.kind });
    else if (before !== now) this.cy.getElementById(box.id).data(data).position(position);
    return now;
  }

  private syncEdge(drawn: DrawnEdge, changed: boolean, added: ElementDefinition[]): string {
    const before = this.shown.get(drawn.key);
    const [source, target] = [this.picture.boxes.get(drawn.edge.source), this.picture.boxes.get(drawn.edge.target)];
    if (source === undefined || target === undefined || (before !== undefined && !changed)) return before ?? "";
    const { weights, distances } = relativeTo(source, target, drawn.points);
    const count = drawn.edge.count > 1 ? `×${drawn.edge.count}` : "";
    const data = { weights, distances, count, width: 1.4 + Math.min(2.6, Math.log10(drawn.edge.count)) };
    const classes = `${drawn.points.length === 0 ? "straight" : "curved"}${source.box.kind === "tensor" ? " constant" : ""}`;
    const now = JSON.stringify(data);
    if (before === undefined) {
      const ends = { source: drawn.edge.source, target: drawn.edge.target };
      added.push({ group: "edges", data: { id: drawn.key, ...ends, ...data }, classes });
    } else if (before !== now) {
      const edge = this.cy.getElementById(drawn.key);
      edge.data(data);
      edge.toggleClass("curved", drawn.points.length > 0);
      edge.toggleClass("straight", drawn.points.length === 0);
    }
    return now;
  }
}

const EDGE_TEXT = {
  "font-family": "system-ui, sans-serif",
  "font-size": 12,
  "min-zoomed-font-size": 6,
  "text-background-opacity": 0.85,
  "text-background-padding": "2px",
};

function styleOf(palette: Palette): StylesheetJson {
  return [
    {
      selector: "node",
      style: {
        shape: "round-rectangle",
        "corner-radius": "7",
        width: "data(width)",
        height: "data(height)",
        "background-color": "data(fill)",
        "border-width": 1,
        "border-color": palette.line,
        color: "data(ink)",
        label: "data(label)",
        "font-family": "system-ui, sans-serif",
        "font-size": 14,
        "line-height": 1.2,
        "min-zoomed-font-size": 6,
        "text-valign": "center",
        "text-halign": "center",
        "text-wrap": "wrap",
        "text-max-width": "160px",
        "overlay-opacity": 0,
      },
    },
    { selector: "node.leaf, node.tensor", style: { "corner-radius": "30" } },
    { selector: "node.group", style: { "border-width": 4, "border-style": "double", "border-color": palette.quiet } },
    {
      selector: "edge",
      style: {
        width: "data(width)",
        "line-color": palette.edge,
        "target-arrow-color": palette.edge,
        "target-arrow-shape": "triangle",
        "arrow-scale": 0.8,
        "overlay-opacity": 0,
        label: "data(count)",
        ...EDGE_TEXT,
        color: palette.quiet,
        "text-background-color": palette.paper,
      },
    },
    { selector: "edge.constant", style: { "line-style": "dashed" } },
    { selector: "edge.straight", style: { "curve-style": "straight" } },
    {
      selector: "edge.curved",
      style: {
        "curve-style": "unbundled-bezier",
        "edge-distances": "node-position",
        "control-point-distances": "data(distances)",
        "control-point-weights": "data(weights)",
      },
    },
    { selector: "node.match", style: { "border-width": 3, "border-style": "solid", "border-color": palette.accent } },
    {
      selector: "node.target",
      style: { "border-width": 3, "border-style": "dashed", "border-color": palette.accent },
    },
    {
      selector: "edge.target",
      style: { "line-color": palette.accent, "source-arrow-color": palette.accent, "source-arrow-shape": "triangle", "target-arrow-shape": "none", width: 3, label: "data(flow)", color: palette.ink },
    },
    {
      selector: "node:selected, node.current",
      style: { "border-width": 4, "border-style": "solid", "border-color": palette.accent },
    },
  ] as StylesheetJson;
}
