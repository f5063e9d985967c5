// A drawing that is made anew when its size, the palette or what it depends on changes.

import { useEffect, useRef, useState } from "preact/hooks";
import { currentPalette, onPaletteChange } from "../graph/colour";
import type { Palette } from "../graph/colour";

export interface Drawing {
  context: CanvasRenderingContext2D;
  width: number;
  height: number;
  palette: Palette;
}

interface Props {
  height: number;
  label: string;
  draw: (drawing: Drawing) => void;
  onMove?: (x: number, y: number) => void;
  onLeave?: () => void;
  onPress?: (x: number, y: number) => void;
}

/** A canvas as wide as there is room. Positions are in pixels of the style sheet. */
export function Canvas({ height, label, draw, onMove, onLeave, onPress }: Props) {
  const element = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [palette, setPalette] = useState(currentPalette);
  useEffect(() => {
    const canvas = element.current;
    if (canvas === null) return;
    const observer = new ResizeObserver(() => setWidth(canvas.clientWidth));
    observer.observe(canvas);
    const stop = onPaletteChange(() => setPalette(currentPalette()));
    return () => {
      observer.disconnect();
      stop();
    };
  }, []);
  useEffect(() => {
    const context = element.current?.getContext("2d");
    if (!context || width === 0) return;
    const ratio = devicePixelRatio;
    const canvas = context.canvas;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    draw({ context, width, height, palette });
  }, [draw, width, height, palette]);
  return (
    <canvas
      ref={element}
      class="drawing"
      role="img"
      aria-label={label}
      style={{ height: `${height}px` }}
      onPointerMove={(event) => onMove?.(event.offsetX, event.offsetY)}
      onPointerLeave={() => onLeave?.()}
      onClick={(event) => onPress?.(event.offsetX, event.offsetY)}
    />
  );
}
