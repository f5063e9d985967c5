// A long list of rows of one height, of which only those in view are in the document.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

const OVERSCAN = 8;

interface Props<T> {
  rows: T[];
  rowHeight: number;
  keyOf: (row: T) => string;
  render: (row: T, index: number) => ComponentChildren;
  /** Above the rows; it stays in view. */
  header: ComponentChildren;
  label: string;
  class?: string;
}

/** A scrolling table. A row is drawn by `render`, as cells of a grid; assistive technology learns the whole count. */
export function VirtualTable<T>({ rows, rowHeight, keyOf, render, header, label, class: name }: Props<T>) {
  const element = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  useEffect(() => {
    const box = element.current;
    if (box === null) return;
    const measure = () => setView({ top: box.scrollTop, height: box.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    box.addEventListener("scroll", measure, { passive: true });
    measure();
    return () => {
      observer.disconnect();
      box.removeEventListener("scroll", measure);
    };
  }, []);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + OVERSCAN);
  return (
    <div class={`table ${name ?? ""}`} role="table" aria-label={label} aria-rowcount={rows.length + 1} ref={element} tabIndex={0}>
      <div class="row head" role="row" aria-rowindex={1}>
        {header}
      </div>
      <div class="body" role="rowgroup" style={{ height: `${rows.length * rowHeight}px` }}>
        {rows.slice(first, last).map((row, index) => (
          <div
            class="row"
            role="row"
            key={keyOf(row)}
            aria-rowindex={first + index + 2}
            style={{ transform: `translateY(${(first + index) * rowHeight}px)`, height: `${rowHeight}px` }}
          >
            {render(row, first + index)}
          </div>
        ))}
      </div>
    </div>
  );
}

interface HeadingProps<K extends string> {
  column: K;
  label: string;
  sort: Sort<K>;
  onSort: (sort: Sort<K>) => void;
  numeric?: boolean;
}

export interface Sort<K extends string> {
  column: K;
  descending: boolean;
}

/** A column's heading, which sorts by the column; a second press turns the order around. */
export function Heading<K extends string>({ column, label, sort, onSort, numeric = false }: HeadingProps<K>) {
  const active = sort.column === column;
  const order = !active ? "none" : sort.descending ? "descending" : "ascending";
  const press = () => onSort({ column, descending: active ? !sort.descending : numeric });
  return (
    <div role="columnheader" aria-sort={order} class={`${numeric ? "numeric" : ""} ${column}`}>
      <button type="button" class="sort" onClick={press}>
        {label}
        <span aria-hidden="true">{active ? (sort.descending ? " ↓" : " ↑") : ""}</span>
      </button>
    </div>
  );
}

/** Rows in the order that a heading asks for; equal ones keep their order, and absent values come last. */
export function sorted<T>(rows: T[], valueOf: (row: T) => string | number | null | undefined, descending: boolean): T[] {
  const sign = descending ? -1 : 1;
  return [...rows].sort((left, right) => {
    const a = valueOf(left);
    const b = valueOf(right);
    if (a === null || a === undefined || b === null || b === undefined) {
      return Number(a === null || a === undefined) - Number(b === null || b === undefined);
    }
    if (typeof a === "string" && typeof b === "string") return sign * a.localeCompare(b);
    return sign * (Number(a) - Number(b));
  });
}
