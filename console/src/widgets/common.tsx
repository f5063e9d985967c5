// Small parts that all views use.

import type { ButtonHTMLAttributes, ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Problem } from "../api/client";

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
      <path d="M4 7h24L16 27z" />
      <circle cx="4" cy="7" r="3" />
      <circle cx="28" cy="7" r="3" />
      <circle class="spark" cx="16" cy="27" r="3.4" />
    </svg>
  );
}

/** A failure in the server's own words. Names in it are text, never markup. */
export function ErrorNote({ error, title }: { error: Error; title?: string }) {
  const heading = title ?? (error instanceof Problem ? error.title : "That did not work");
  return (
    <div class="note bad" role="alert">
      <strong>{heading}</strong>
      <p>{error.message}</p>
      {error instanceof Problem && typeof error.document["hint"] === "string" && <p>{error.document["hint"]}</p>}
      {error instanceof Problem && <FailedInstruction document={error.document} />}
    </div>
  );
}

/** Which instruction of a program failed, and what to do next. */
function FailedInstruction({ document }: { document: Record<string, unknown> }) {
  const { instruction, op, progress } = document as { instruction?: unknown; op?: unknown; progress?: { next?: unknown } | null };
  if (typeof instruction !== "number") return null;
  return (
    <p class="quiet">
      Instruction {instruction} of the program (the first is 0), <code>{String(op)}</code>. {String(progress?.next ?? "")}
    </p>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <Logo />
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** A figure with its name below. */
export function Metric({ label, value, title }: { label: string; value: ComponentChildren; title?: string }) {
  return (
    <div class="metric" title={title}>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

/** A modal dialog: it holds the focus, and Escape closes it. */
export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  const cancelled = (event: Event) => {
    event.preventDefault();
    onClose();
  };
  return (
    <dialog ref={element} onCancel={cancelled} aria-labelledby="dialog-title">
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

interface Choice<T extends string> {
  value: T;
  label: string;
  title?: string;
}

interface SegmentsProps<T extends string> {
  label: string;
  choices: Choice<T>[];
  value: T;
  onChange: (value: T) => void;
}

/** One of a few choices, all of them visible. */
export function Segments<T extends string>({ label, choices, value, onChange }: SegmentsProps<T>) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {choices.map((choice) => (
        <button
          key={choice.value}
          type="button"
          title={choice.title}
          aria-pressed={choice.value === value}
          onClick={() => onChange(choice.value)}
        >
          {choice.label}
        </button>
      ))}
    </div>
  );
}

type IconName = "play" | "pause" | "next" | "previous" | "first" | "plus" | "minus" | "fit" | "close" | "copy" | "search";

const ICONS: Record<IconName, string> = {
  play: "M8 5v14l11-7z",
  pause: "M7 5h4v14H7zM14 5h4v14h-4z",
  next: "M6 5v14l9-7zM17 5h2v14h-2z",
  previous: "M18 5v14l-9-7zM5 5h2v14H5z",
  first: "M20 5v14l-7-7zM12 5v14l-7-7z",
  plus: "M11 5h2v6h6v2h-6v6h-2v-6H5v-2h6z",
  minus: "M5 11h14v2H5z",
  fit: "M4 4h6v2H6v4H4zM14 4h6v6h-2V6h-4zM4 14h2v4h4v2H4zM18 14h2v6h-6v-2h4z",
  close: "M6.4 5 12 10.6 17.6 5 19 6.4 13.4 12l5.6 5.6-1.4 1.4-5.6-5.6L6.4 19 5 17.6l5.6-5.6L5 6.4z",
  copy: "M8 3h11v13h-2V5H8zM5 7h10v14H5zM7 9v10h6V9z",
  search: "M10 4a6 6 0 0 1 4.8 9.6l5 5-1.4 1.4-5-5A6 6 0 1 1 10 4zm0 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
};

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={ICONS[name]} />
    </svg>
  );
}

interface IconButtonProps extends ButtonHTMLAttributes {
  icon: IconName;
  label: string;
}

export function IconButton({ icon, label, ...rest }: IconButtonProps) {
  return (
    <button type="button" class="icon-button" aria-label={label} title={label} {...rest}>
      <Icon name={icon} />
    </button>
  );
}
