// A large part of a graph at a small scale: plain rectangles and lines, too small for labels, drawn anew in each frame.

import { overlaps } from "../layout/geometry";
import type { Point, Rectangle } from "../layout/geometry";
import type { Palette } from "./colour";
import type { DrawnBox, Picture } from "./picture";

const MARKED_PX = 9;

export interface View {
  zoom: number;
  pan: Point;
  visible: Rectangle;
}

export class Overview {
  private readonly canvas = document.createElement("canvas");
  private isClear = true;

  constructor(container: HTMLElement) {
    this.canvas.className = "overview";
    container.append(this.canvas);
  }

  clear(): void {
    if (this.isClear) return;
    this.canvas.getContext("2d")?.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.isClear = true;
  }

  /** Draw what is visible of a picture, with frames around the marked boxes. */
  draw(picture: Picture, { zoom, pan, visible }: View, palette: Palette, marked: (id: string) => boolean): void {
    const context = this.canvas.getContext("2d");
    if (context === null) return;
    const ratio = devicePixelRatio;
    const [width, height] = [Math.round(this.canvas.clientWidth * ratio), Math.round(this.canvas.clientHeight * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, height);
    context.setTransform(zoom * ratio, 0, 0, zoom * ratio, pan.x * ratio, pan.y * ratio);
    this.isClear = false;
    drawEdges(context, picture, visible, palette, zoom);
    const frames: DrawnBox[] = [];
    for (const box of picture.boxes.values()) {
      if (!overlaps(rectangleOf(box), visible)) continue;
      context.fillStyle = box.fill;
      context.fillRect(box.x - box.width / 2, box.y - box.height / 2, box.width, box.height);
      context.strokeStyle = palette.line;
      context.lineWidth = 0.6 / zoom;
      context.strokeRect(box.x - box.width / 2, box.y - box.height / 2, box.width, box.height);
      if (marked(box.box.id)) frames.push(box);
    }
    context.strokeStyle = palette.accent;
    context.lineWidth = 2.5 / zoom;
    for (const { x, y, width: w, height: h } of frames) {
      const [wide, high] = [Math.max(w, MARKED_PX / zoom), Math.max(h, MARKED_PX / zoom)];
      context.strokeRect(x - wide / 2, y - high / 2, wide, high);
    }
  }
}

function drawEdges(context: CanvasRenderingContext2D, picture: Picture, visible: Rectangle, palette: Palette, zoom: number): void {
  context.strokeStyle = palette.edge;
  context.lineWidth = 0.8 / zoom;
  context.beginPath();
  for (const { edge, points, bounds } of picture.edges.values()) {
    const [source, target] = [picture.boxes.get(edge.source), picture.boxes.get(edge.target)];
    if (source === undefined || target === undefined || !overlaps(bounds, visible)) continue;
    context.moveTo(source.x, source.y);
    for (const { x, y } of points) context.lineTo(x, y);
    context.lineTo(target.x, target.y);
  }
  context.stroke();
}

export function rectangleOf({ x, y, width, height }: DrawnBox): Rectangle {
  return { x1: x - width / 2, y1: y - height / 2, x2: x + width / 2, y2: y + height / 2 };
}
